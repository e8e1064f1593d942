// Figures are drawn when they come near the window: a page of a hundred opens at once.
const {template, plots} = JSON.parse(document.getElementById("figures").textContent);
const pointer = matchMedia("(hover: hover)").matches;  // without one, buttons would hide a plot
const options = {displaylogo: false, displayModeBar: pointer ? "hover" : false,
  toImageButtonOptions: {format: "svg"},
  modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "zoomIn2d", "zoomOut2d"]};
function draw(place) {
  if (place.dataset.drawn) return;
  place.dataset.drawn = "yes";
  const {data, layout} = plots[place.id];
  Plotly.newPlot(place, data, {...layout, template}, options).then(() => {
    sizes.observe(place);
    show(place);
  });
}
const sizes = new ResizeObserver(changed => {
  for (const {target} of changed)
    if (target.clientWidth !== target._fullLayout.width) Plotly.Plots.resize(target);
});
const places = [...document.querySelectorAll(".plot")];
const watch = new IntersectionObserver(seen => {
  for (const {isIntersecting, target} of seen)
    if (isIntersecting) { watch.unobserve(target); draw(target); }
}, {rootMargin: "1200px"});
for (const place of places)
  if (place.getBoundingClientRect().top < innerHeight + 1200) draw(place); else watch.observe(place);
window.addEventListener("beforeprint", () => places.forEach(draw));

// The legend of a figure: a click hides a method in all its panels.
function show(place) {
  const hidden = [...place.closest("figure").querySelectorAll("button.off")];
  const off = new Set(hidden.map(button => button.dataset.method));
  if (!off.size && !place.dataset.hid) return;
  place.dataset.hid = "yes";
  Plotly.restyle(place, {visible: place.data.map(trace => !off.has(trace.legendgroup))});
}
for (const button of document.querySelectorAll(".legend button"))
  button.addEventListener("click", () => {
    button.classList.toggle("off");
    for (const place of button.closest("figure").querySelectorAll(".plot"))
      if (place.dataset.drawn) show(place);
  });

// The search: every word must be in a run's row. #run=WORDS in the address fills it in.
const search = document.getElementById("search");
const rows = [...document.querySelectorAll("#table-runs tbody tr")];
function filter() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const row of rows)
    row.hidden = !words.every(word => row.textContent.toLowerCase().includes(word));
  const number = rows.filter(row => !row.hidden).length;
  document.getElementById("search-count").textContent =
    words.length ? `${number} of ${rows.length} runs` : "";
}
function toRuns() { document.getElementById("runs").scrollIntoView(); }
search.addEventListener("input", filter);
search.addEventListener("keydown", event => { if (event.key === "Enter") toRuns(); });
const asked = decodeURIComponent(location.hash).match(/^#run=(.*)$/);
if (asked) { search.value = asked[1]; filter(); toRuns(); }
