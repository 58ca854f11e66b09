// Bars of messages by time: a click opens the time range of one bar, which is a link; dragging over
// several opens their common range.
export function startNarrowing() {
  let drawn = null;

  const bars = (plot) => [...plot.querySelectorAll("a")];
  const range = () => [Math.min(drawn.from, drawn.to), Math.max(drawn.from, drawn.to)];

  function at(event) {
    const box = drawn.plot.getBoundingClientRect();
    const all = bars(drawn.plot).length;
    const number = Math.floor(((event.clientX - box.left) / box.width) * all);
    return Math.min(Math.max(number, 0), all - 1);
  }

  function show() {
    const [first, last] = range();
    bars(drawn.plot).forEach((bar, number) => bar.classList.toggle("drawn", first <= number && number <= last));
  }

  document.addEventListener("pointerdown", (event) => {
    const plot = event.target.closest("svg.bars");
    if (!plot || event.button !== 0) return;
    drawn = { plot, from: 0, to: 0 };
    drawn.from = drawn.to = at(event);
  });
  document.addEventListener("pointermove", (event) => {
    if (!drawn) return;
    drawn.to = at(event);
    if (drawn.to !== drawn.from) show();
  });
  document.addEventListener("pointerup", () => {
    if (!drawn) return;
    const [first, last] = range();
    const all = bars(drawn.plot);
    drawn = null;
    if (first === last) return;
    const address = new URL(all[first].getAttribute("href"), location.href);
    const end = new URL(all[last].getAttribute("href"), location.href);
    address.searchParams.set("until", end.searchParams.get("until"));
    location.href = address.href;
  });
  document.addEventListener("pointercancel", () => { drawn = null; });
  // The browser would drag the link.
  document.addEventListener("dragstart", (event) => {
    if (event.target.closest?.("svg.bars")) event.preventDefault();
  });
}
