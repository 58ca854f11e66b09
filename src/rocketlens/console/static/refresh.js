// Refreshes the changing part of a page: of a running job each second, of others at their interval.
const EVERY_MS = 1000;

export function startRefresh(announce) {
  const area = document.querySelector("[data-refresh]");
  if (!area) return;
  const every = Number(area.dataset.every ?? EVERY_MS);
  const look = async () => {
    // Keep a focused link in place, and do not refresh a hidden page.
    if (area.dataset.every && (document.hidden || area.contains(document.activeElement))) { setTimeout(look, every); return; }
    const answer = await fetch(area.dataset.refresh, { headers: { accept: "text/html" } }).catch(() => null);
    if (!answer?.ok) { setTimeout(look, every * 5); return; }
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const part = page.getElementById(area.id);
    // The end of a job changes more than this part.
    if (!part?.dataset.refresh) { location.reload(); return; }
    const open = [...area.querySelectorAll("details[open]")].map((each) => each.id);
    area.replaceChildren(...part.childNodes);
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    document.dispatchEvent(new Event("refreshed"));
    announce(area.querySelector("strong")?.textContent ?? "");
    setTimeout(look, every);
  };
  // A slow part is loaded after the page.
  setTimeout(look, area.dataset.atOnce === undefined ? every : 0);
}
