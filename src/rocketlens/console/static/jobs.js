// A job that runs: its part of the page comes again every second, until it ends.
const EVERY_MS = 1000;

export function startJob(announce) {
  const area = document.querySelector("[data-refresh]");
  if (!area) return;
  const look = async () => {
    const answer = await fetch(area.dataset.refresh, { headers: { accept: "text/html" } }).catch(() => null);
    if (!answer?.ok) { setTimeout(look, EVERY_MS * 5); return; }
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const part = page.getElementById("job");
    // The end changes more of the page than this part.
    if (!part?.dataset.refresh) { location.reload(); return; }
    area.replaceChildren(...part.childNodes);
    announce(area.querySelector("strong")?.textContent ?? "");
    setTimeout(look, EVERY_MS);
  };
  setTimeout(look, EVERY_MS);
}
