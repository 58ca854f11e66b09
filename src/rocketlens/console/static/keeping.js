// Keeps the input of a form for the next load of its page: after a session has ended, or after a
// change of the language or the time zone.
const KEPT = "rl_kept";
const FIELDS = "form[data-keeps] :is(input:not([type=hidden]), textarea, select)";

const page = () => location.pathname + location.search;
const fields = () => [...document.querySelectorAll(FIELDS)];

function keep() {
  const values = fields().map((each) => [each.name, each.value, each.checked]);
  if (!values.length) return;
  const viewer = document.body.dataset.viewer;
  try {
    sessionStorage.setItem(KEPT, JSON.stringify({ page: page(), viewer, values }));
  } catch {
    // The storage of the browser is full.
    sessionStorage.removeItem(KEPT);
  }
}

export function startKeeping(announce) {
  // The login page comes between the form and its page.
  if (document.querySelector("[data-keeps-typed]")) return;
  const kept = JSON.parse(sessionStorage.getItem(KEPT));
  sessionStorage.removeItem(KEPT);
  addEventListener("pagehide", keep);
  if (kept?.page !== page() || kept.viewer !== document.body.dataset.viewer) return;
  const now = fields();
  if (now.length !== kept.values.length || now.some((each, n) => each.name !== kept.values[n][0])) return;
  let isOther = false;
  for (const [n, [, value, checked]] of kept.values.entries()) {
    isOther ||= now[n].value !== value || now[n].checked !== checked;
    now[n].value = value;
    if (checked !== undefined) now[n].checked = checked;
  }
  if (isOther) announce(document.body.dataset.kept);
}
