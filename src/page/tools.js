// Helpers that the scripts of all pages share: the data, DOM elements, number formatting, tables, tooltips and plots.
const numbers = JSON.parse(document.getElementById("numbers").textContent);
const by = id => document.getElementById(id);
function make(name, attributes = {}, ...children) {
  const svg = ["svg", "path", "line", "text", "rect", "circle", "g"].includes(name);
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) if (value !== null) node.setAttribute(key, value);
  node.append(...children.map(c => c instanceof Node ? c : String(c)));
  return node;
}

// Colour of a category of memory, task, timer section or part of a step. The palette is in head.html.
const same_colours = { "backward (input gradients)": "backward", "backward (weight gradients)": "backward-weights", "zero gradients": "optimizer",
  "wait for a message": "pipeline", "send": "pipeline", "bubble": "pipeline", "pipeline wait": "pipeline", "compute": "forward", "host copies": "host",
  "wait for gradient reduction or weight all-gather": "data-parallel", "reduce gradients of a bucket": "data-parallel", "all-gather weights of a bucket": "data-parallel",
  "data-parallel comm": "data-parallel", "model-parallel comm": "model-parallel", "activations of micro-batches in flight": "activations",
  "temporary memory of the task": "scratch" };
const coloured = new Set(["weights", "gradients", "optimizer", "activations", "scratch", "forward", "backward"]);
const shade = name => `var(--${same_colours[name] ?? (coloured.has(name) ? name : "faint")})`;
const square = (fill, opacity = 1) => make("span", { class: "square", style: `background:${fill};opacity:${opacity}` });

// Number with an SI suffix; small ones as in a deck, such as 6e-3. `most`: the largest number of an axis, which sets the suffix of all.
function short(x, most = x) {
  if (x === null || !Number.isFinite(x)) return "-";
  const a = Math.abs(most ?? x), suffix = [[1e18, "E"], [1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]].find(([least]) => a >= least);
  if (suffix && x !== 0) return +(x / (suffix[1] === "k" ? 1e3 : suffix[0])).toPrecision(4) + " " + suffix[1];
  return x !== 0 && a < 1e-2 ? power(x) : String(+x.toPrecision(5));
}
const power = x => x === 0 ? "0" : x.toExponential(2).replace(/\.?0*e\+?/, "e");
const fixed = (x, digits) => x === null || !Number.isFinite(x) ? "-" : x.toFixed(digits);
const grouped = x => x.toLocaleString("en", { maximumFractionDigits: 0 }).replaceAll(",", "\u202f");
// Duration; `most`: the longest one of an axis, so that all have the same form.
function span(seconds, most = seconds) {
  if (seconds === null || !Number.isFinite(seconds)) return "-";
  const s = Math.round(seconds), h = Math.floor(s / 3600), two = n => String(n).padStart(2, "0");
  if (most < 10) return +seconds.toFixed(1) + " s";
  return h >= 24 ? `${Math.floor(h / 24)}d ${two(h % 24)}:${two(Math.floor(s / 60) % 60)}` : `${h}:${two(Math.floor(s / 60) % 60)}:${two(s % 60)}`;
}
const date = seconds => seconds === null || !Number.isFinite(seconds) ? "-" : new Date(seconds * 1000).toISOString().slice(0, 19).replace("T", " ") + " UTC";
const bytes = n => n === null ? "-" : n >= 2 ** 30 ? (n / 2 ** 30).toFixed(2) + " GiB" : (n / 2 ** 20).toFixed(1) + " MiB";
const count = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`;
// Unit that suits all values of a column or axis: [factor, name].
function time_unit(values) {
  const most = Math.max(...values.map(Math.abs), 0);
  return most >= 1 ? [1, "s"] : most >= 1e-3 ? [1e3, "ms"] : [1e6, "µs"];
}
// About `count` round values between low and high.
function ticks(low, high, count, of_time = false) {
  const rough = (high - low) / count, unit = 10 ** Math.floor(Math.log10(rough));
  const clock = [10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];
  const choice = of_time && rough > 5 && rough <= 86400 ? clock : [1, 2, 5, 10].map(m => m * unit);
  const step = choice.reduce((a, b) => Math.abs(Math.log(b / rough)) < Math.abs(Math.log(a / rough)) ? b : a);
  const out = [];
  if (!(step > 0 && Number.isFinite(step))) return out;
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; ++n) out.push(n * step);
  return out;
}

function table(head, rows, text = []) {
  const kind = i => text.includes(i) ? { class: "text" } : {};
  return make("table", {}, make("thead", {}, make("tr", {}, ...head.map((h, i) => make("th", { scope: "col", ...kind(i) }, h)))),
    make("tbody", {}, ...rows.map(r => make("tr", {}, ...r.map((c, i) => make("td", kind(i), c))))));
}
const list = facts => make("dl", { class: "facts" }, ...facts.filter(([, value]) => value !== "").map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
const figure = (value, unit, name) => make("div", { class: "figure" }, make("b", {}, value, ...(unit ? [" ", make("small", {}, unit)] : [])), make("span", {}, name));
// A folded part of the page that is built when it is opened.
function folded(title, build) {
  const details = make("details", {}, make("summary", {}, title));
  details.ontoggle = () => { if (details.open) details.replaceChildren(details.firstChild, build()); };
  return details;
}
function download(name, text) {
  const link = make("a", { download: name, href: URL.createObjectURL(new Blob([text], { type: "text/csv" })) });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

const tip = by("tip");
function show_tip(event, lines) {
  tip.replaceChildren(...lines.map(l => make("div", {}, ...(Array.isArray(l) ? l : [l]))));
  tip.style.display = "block";
  const box = tip.getBoundingClientRect();
  const right = event.clientX + 16 + box.width <= innerWidth - 6 ? event.clientX + 16 : event.clientX - 16 - box.width;
  tip.style.left = Math.max(4, Math.min(right, innerWidth - box.width - 6)) + "px";
  tip.style.top = Math.max(4, Math.min(event.clientY - box.height - 10, innerHeight - box.height - 6)) + "px";
}
const hide_tip = () => { tip.style.display = "none"; };
function explain(node, lines) {
  node.onpointermove = e => show_tip(e, lines);
  node.onpointerleave = hide_tip;
  return node;
}

// Index of the element of the ascending array xs that is nearest to x.
function nearest(xs, x) {
  let low = 0, high = xs.length - 1;
  while (low < high) { const m = (low + high) >> 1; if (xs[m] < x) low = m + 1; else high = m; }
  return low > 0 && x - xs[low - 1] < xs[low] - x ? low - 1 : low;
}

// Cross-hair and zoom of a plot, by pointer and by keyboard. The plot shows low to high between the pixels left and right, from
// top to bottom. point(event, value, y) describes the place under the pointer; zoom([low, high]) shows a part, zoom(null) all.
function interactive(svg, { left, right, top, bottom, low, high, point, zoom, leave = () => {} }) {
  const X = v => left + (v - low) / (high - low) * (right - left), value = x => Math.min(high, Math.max(low, low + (x - left) / (right - left) * (high - low)));
  const cross = make("line", { y1: top, y2: bottom, stroke: "var(--faint)", "stroke-dasharray": "2 3", visibility: "hidden" });
  const chosen = make("rect", { y: top, height: bottom - top, fill: "var(--accent)", "fill-opacity": .15, visibility: "hidden" });
  svg.append(chosen, cross);
  let from = null, at = (low + high) / 2;
  const place = e => { const b = svg.getBoundingClientRect(), scale = svg.viewBox.baseVal.width / b.width; return [(e.clientX - b.left) * scale, (e.clientY - b.top) * scale]; };
  const show = (e, v, y) => {
    at = v;
    cross.setAttribute("x1", X(v)); cross.setAttribute("x2", X(v)); cross.setAttribute("visibility", "visible");
    point(e, v, y);
  };
  const hide = () => { hide_tip(); cross.setAttribute("visibility", "hidden"); leave(); };
  svg.onpointermove = e => {
    const [x, y] = place(e), v = value(x);
    if (from !== null) { chosen.setAttribute("x", X(Math.min(from, v))); chosen.setAttribute("width", Math.abs(X(v) - X(from))); chosen.setAttribute("visibility", "visible"); }
    show(e, v, y);
  };
  svg.onpointerdown = e => { from = value(place(e)[0]); svg.setPointerCapture(e.pointerId); };
  svg.onpointerup = e => {
    if (from === null) return;
    const to = value(place(e)[0]), a = Math.min(from, to), b = Math.max(from, to);
    from = null;
    if (X(b) - X(a) > 6) zoom([a, b]); else chosen.setAttribute("visibility", "hidden");
  };
  svg.onpointercancel = () => { from = null; chosen.setAttribute("visibility", "hidden"); };
  svg.onpointerleave = svg.onblur = hide;
  svg.ondblclick = () => zoom(null);
  svg.setAttribute("tabindex", 0);
  svg.onkeydown = e => {
    const half = (high - low) / 2, moves = { ArrowLeft: -half / 50, ArrowRight: half / 50, Home: low - at, End: high - at };
    if (e.key in moves) {
      const v = Math.min(high, Math.max(low, at + moves[e.key])), b = svg.getBoundingClientRect(), scale = b.width / svg.viewBox.baseVal.width;
      show({ clientX: b.left + X(v) * scale, clientY: b.top + (top + bottom) / 2 * scale }, v, null);
    } else if (e.key === "+" || e.key === "=") zoom([Math.max(low, at - half / 2), Math.min(high, at + half / 2)]);
    else if (e.key === "-" || e.key === "Escape") { hide(); zoom(null); } else return;
    e.preventDefault();
  };
}

// Draws again when the width of `box` changes. Paper is narrower than most screens: before printing, the page takes its width.
function when_resized(box, draw) {
  let width = box.clientWidth;
  const redraw = () => { if (box.clientWidth !== width) { width = box.clientWidth; draw(); } };
  addEventListener("resize", redraw);
  new ResizeObserver(() => requestAnimationFrame(redraw)).observe(box);
  addEventListener("beforeprint", () => { document.body.style.width = "720px"; redraw(); });
  addEventListener("afterprint", () => { document.body.style.width = ""; redraw(); });
}
