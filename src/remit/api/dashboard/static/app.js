// Fetches the page anew when something has happened, and puts its parts in place. The server writes all
// markup; what a run says is only ever set as text.
"use strict";

const MOST_CHARACTERS = 20000;
const BETWEEN_MS = 700;

let fetching = false;
let again = false;

async function refresh() {
  if (fetching) { again = true; return; }
  fetching = true;
  try {
    const answer = await fetch(location.href, { credentials: "same-origin", headers: { Accept: "text/html" } });
    if (answer.redirected && new URL(answer.url).pathname === "/login") { location.assign("/login"); return; }
    if (answer.ok) { place(new DOMParser().parseFromString(await answer.text(), "text/html")); }
  } catch (error) {
    console.warn("could not refresh", error);
  } finally {
    fetching = false;
  }
  await new Promise((done) => setTimeout(done, BETWEEN_MS));
  if (again) { again = false; await refresh(); }
}

// A part in which somebody types, chooses or reads with the keyboard is left alone; it comes with the next change.
function place(fresh) {
  for (const part of document.querySelectorAll("[data-part]")) {
    const other = fresh.getElementById(part.id);
    if (other === null || other.innerHTML === part.dataset.was) { continue; }
    if (part.contains(document.activeElement) && part.querySelector("input:focus, button:focus")) { continue; }
    const was = other.innerHTML;
    const focused = part.contains(document.activeElement) ? document.activeElement.closest("[id]")?.id : null;
    for (const box of part.querySelectorAll("details[id]")) {
      const twin = other.querySelector("#" + CSS.escape(box.id));
      if (twin !== null) { twin.open = box.open; }
    }
    part.replaceChildren(...other.childNodes);
    part.dataset.was = was;
    if (focused) { (document.getElementById(focused)?.querySelector("summary") ?? document.getElementById(focused))?.focus({ preventScroll: true }); }
  }
  document.title = fresh.title;
}

function follow(address) {
  const source = new EventSource(address);
  const stream = document.getElementById("stream");
  const show = (event) => {
    const data = JSON.parse(event.data).data;
    const text = data.text ?? data.delta ?? "";
    if (stream === null || !text) { return; }
    const low = stream.scrollTop + stream.clientHeight >= stream.scrollHeight - 8;
    stream.append(text);
    while (stream.childNodes.length > 1 && stream.textContent.length > MOST_CHARACTERS) { stream.firstChild.remove(); }
    if (low) { stream.scrollTop = stream.scrollHeight; }
  };
  for (const type of ["message.delta", "reasoning.delta", "tool.output"]) { source.addEventListener(type, show); }
  for (const type of [
    "run.started", "run.cancel_requested", "run.finalizing", "run.settling", "stage.started", "stage.completed", "stage.failed",
    "attempt.started", "attempt.completed", "attempt.failed", "tool.started", "tool.completed", "work.registered", "work.finished",
    "checkout.opened", "check.completed", "review.decided", "usage.updated", "limit.warning", "delivery.intent", "delivery.completed",
  ]) { source.addEventListener(type, refresh); }
  for (const type of ["run.completed", "run.failed", "run.cancelled", "run.indeterminate"]) {
    source.addEventListener(type, () => { source.close(); location.reload(); });
  }
}

const page = document.body.dataset;
if (page.events) { follow(page.events); }
if (page.every) { setInterval(() => { if (!document.hidden) { refresh(); } }, Number(page.every) * 1000); }
