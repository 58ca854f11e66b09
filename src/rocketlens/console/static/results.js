// Streams results, loads further pages at the end, and keeps parts far from the screen as text, so
// that a list of 100,000 rows scrolls like one of 200. Parts with a chosen row stay in the page, as a
// form sends only those.
//
// Rows of a running search arrive queue by queue. Each is inserted by time, newest first.
//
// The server has rendered and escaped everything that is inserted.
const FAR = "1500px";

const parsed = (html) => {
  const template = document.createElement("template");
  template.innerHTML = html;
  return template.content;
};

// Keep the rows of a part only while it is near the screen.
function keepNear(body) {
  let text = null;
  const watch = new IntersectionObserver((entries) => {
    const entry = entries.at(-1);
    if (entry.isIntersecting && text !== null) {
      body.replaceChildren(parsed(`<table><tbody>${text}</tbody></table>`).querySelector("tbody"));
      body.replaceChildren(...body.firstElementChild.children);
      text = null;
    } else if (!entry.isIntersecting && text === null && !body.querySelector(".selected, :focus, :checked")) {
      const height = body.getBoundingClientRect().height;
      text = body.innerHTML;
      const spacer = document.createElement("tr");
      const cell = spacer.insertCell();
      cell.colSpan = body.parentElement.rows[0].cells.length;
      cell.style.height = `${height}px`;
      cell.style.padding = "0";
      body.replaceChildren(spacer);
    }
  }, { rootMargin: FAR });
  watch.observe(body);
}

function continueAt(link, table, announce) {
  let isLoading = false;
  const load = async () => {
    if (isLoading) return;
    isLoading = true;
    const answer = await fetch(link.dataset.more, { headers: { accept: "text/html" } }).catch(() => null);
    if (!answer) { isLoading = false; return; }
    const page = parsed(await answer.text());
    const rows = page.querySelector("tbody");
    if (!answer.ok || !rows) {
      // Show an error, never the end of the list.
      link.parentElement.replaceWith(page.querySelector(".failure") ?? page);
      return;
    }
    const body = document.createElement("tbody");
    body.append(...rows.children);
    table.append(body);
    keepNear(body);
    const note = page.querySelector(".is-incomplete");
    if (note) table.closest(".scrolls").before(note);
    const more = page.querySelector(".more");
    link.parentElement.replaceWith(more);
    const next = more.querySelector("[data-more]");
    if (next) continueAt(next, table, announce);
  };
  link.addEventListener("click", (event) => { event.preventDefault(); load(); });
  const watch = new IntersectionObserver((entries) => {
    // A busy browser reports several frames at once, newest last.
    if (entries.at(-1).isIntersecting) { watch.disconnect(); load(); }
  }, { rootMargin: "300px" });
  watch.observe(link);
}

function startContinuing(announce) {
  const link = document.querySelector("[data-more]");
  const table = document.querySelector("table.messages");
  if (!link || !table) return;
  keepNear(table.tBodies[0]);
  continueAt(link, table, announce);
}

const timeOf = (row) => Number(row.querySelector("time").getAttribute("datetime"));

function insertByTime(table, rows) {
  for (const row of rows) {
    const time = timeOf(row);
    let [low, high] = [0, table.rows.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (timeOf(table.rows[middle]) >= time) low = middle + 1;
      else high = middle;
    }
    table.insertBefore(row, table.rows[low] ?? null);
  }
}

function stream(area, announce) {
  const events = new EventSource(area.dataset.stream);
  const found = document.getElementById("found");
  const covered = document.getElementById("covered");
  const end = (html) => {
    events.close();
    area.replaceChildren(parsed(html));
    announce(area.querySelector(".verdict-line p, .failure h2")?.textContent.replace(/\s+/g, " ") ?? "");
    startContinuing(announce);
  };
  events.addEventListener("found", (event) => {
    for (const part of parsed(event.data).querySelectorAll("template")) {
      if (part.dataset.part === "rows") insertByTime(found, part.content.querySelectorAll("tr"));
      else covered.append(...part.content.children);
    }
  });
  events.addEventListener("waiting", (event) => {
    document.getElementById("elapsed").textContent = event.data;
  });
  events.addEventListener("answer", (event) => end(event.data));
  events.addEventListener("failure", (event) => end(event.data));
  events.onerror = () => {
    // The connection ended without an answer: load the page, which shows the error.
    events.close();
    document.cookie = "rl_script=; path=/; max-age=0";
    location.reload();
  };
  document.getElementById("stop").addEventListener("click", () => {
    events.close();
    document.querySelector(".spinner").remove();
    const section = area.querySelector("[data-stopped]");
    section.classList.add("is-incomplete");
    document.getElementById("progress").textContent = section.dataset.stopped;
    document.getElementById("stop").remove();
  });
}

export function startResults(announce) {
  const area = document.querySelector("[data-stream]");
  if (area) stream(area, announce);
  else startContinuing(announce);
}
