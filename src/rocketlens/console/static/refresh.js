// A part of a page that changes while it is looked at comes again: a job that runs, each second;
// others as often as they say.
const EVERY_MS = 1000;

export function startRefresh(announce) {
  const area = document.querySelector("[data-refresh]");
  if (!area) return;
  const every = Number(area.dataset.every ?? EVERY_MS);
  const look = async () => {
    // A link that was reached by keyboard is not taken away, and a hidden page needs no news.
    if (area.dataset.every && (document.hidden || area.contains(document.activeElement))) { setTimeout(look, every); return; }
    const answer = await fetch(area.dataset.refresh, { headers: { accept: "text/html" } }).catch(() => null);
    if (!answer?.ok) { setTimeout(look, every * 5); return; }
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const part = page.getElementById(area.id);
    // The end changes more of the page than this part.
    if (!part?.dataset.refresh) { location.reload(); return; }
    const open = [...area.querySelectorAll("details[open]")].map((each) => each.id);
    area.replaceChildren(...part.childNodes);
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    document.dispatchEvent(new Event("refreshed"));
    announce(area.querySelector("strong")?.textContent ?? "");
    setTimeout(look, every);
  };
  // What took too long to wait for comes as soon as the page is there.
  setTimeout(look, area.dataset.atOnce === undefined ? every : 0);
}
