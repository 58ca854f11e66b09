// Counts the rows that are chosen to be sent again.
export function startChoosing() {
  const show = () => {
    const form = document.getElementById("chosen");
    if (!form) return;
    const count = document.querySelectorAll("input[form=chosen]:checked").length;
    form.hidden = count === 0;
    form.querySelector("output").textContent = form.dataset.count.replace("#", count);
  };
  document.addEventListener("change", show);
  // The boxes are cleared after the event.
  document.addEventListener("reset", () => setTimeout(show));
  // A streamed answer has its own form.
  new MutationObserver(show).observe(document.getElementById("answer") ?? document.body, { childList: true });
  show();
}
