// Figures are drawn when they come near the window: a page of fifty opens at once.
const figures = JSON.parse(document.getElementById("figures").textContent);
const options = {responsive: true, displaylogo: false,
  modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"]};
// In a narrow window the panels of a figure stand below each other.
const NARROW = 640;
function layout(place) {
  const figure = figures[place.id], narrow = place.clientWidth < NARROW;
  place.dataset.narrow = narrow;
  const chosen = narrow ? figure.narrow : figure.layout;
  place.style.minHeight = chosen.height + "px";
  return structuredClone(chosen);  // Plotly writes into what it is given
}
function choices(place) {  // no room for Plotly's buttons beside a narrow legend
  return place.clientWidth < NARROW ? {...options, displayModeBar: false} : options;
}
function draw(place) {
  if (place.dataset.drawn) return;
  place.dataset.drawn = "yes";
  Plotly.newPlot(place, figures[place.id].data, layout(place), choices(place));
}
window.addEventListener("resize", () => {
  for (const place of plots) {
    const narrow = String(place.clientWidth < NARROW);
    if (place.dataset.drawn && place.dataset.narrow !== narrow)
      Plotly.react(place, figures[place.id].data, layout(place), choices(place));
  }
});
const plots = [...document.querySelectorAll(".plot")];
if ("IntersectionObserver" in window) {
  const watch = new IntersectionObserver(seen => {
    for (const one of seen) if (one.isIntersecting) { watch.unobserve(one.target); draw(one.target); }
  }, {rootMargin: "1200px"});
  plots.forEach(place => watch.observe(place));
} else plots.forEach(draw);
window.addEventListener("beforeprint", () => plots.forEach(draw));

// The search: every word must be in a run's row. #run=WORDS in the address fills it in.
const search = document.getElementById("search");
const rows = [...document.querySelectorAll("#table-runs tbody tr")];
const count = document.getElementById("search-count");
function filter() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  let number = 0;
  for (const row of rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every(word => text.includes(word));
    number += !row.hidden;
  }
  count.textContent = words.length ? number + " of " + rows.length + " runs" : "";
}
search.addEventListener("input", filter);
search.addEventListener("keydown", event => {
  if (event.key === "Enter") document.getElementById("runs").scrollIntoView();
});
const asked = decodeURIComponent(location.hash).match(/^#run=(.*)$/);
if (asked) {
  search.value = asked[1];
  filter();
  document.getElementById("runs").scrollIntoView();
}
