"""For the site: the docstrings of the agent classes, which are made when they are asked for."""

import griffe


class AgentDocstrings(griffe.Extension):
    """Gives griffe, which only reads the source, the docstrings of `agent_classes`."""

    def on_class(self, *, cls: griffe.Class, **_: object) -> None:
        """Take the docstring from the class itself."""
        if cls.path.rpartition(".")[0] != "safecritic.agent_classes" or cls.name.startswith("_"):
            return
        from safecritic import agent_classes

        text = getattr(agent_classes, cls.name).__doc__
        cls.docstring = griffe.Docstring(text, parent=cls, parser="google")
