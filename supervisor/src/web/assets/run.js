// One run: its conversation live, messages to the agent, stop. Comes back by itself after any break.
import { Conversation } from "./conversation.js";
import { $, call, problem, statePill } from "./page.js";
import { line } from "./plain.js";

const id = decodeURIComponent(location.pathname.split("/")[2]);
const api = `/api/runs/${encodeURIComponent(id)}`;
const talk = new Conversation($("talk"));
const queue = [];
let over = false;
let retryMs = 500;
let source = null;

function atBottom() {
  return window.innerHeight + window.scrollY >= document.documentElement.scrollHeight - 120;
}

function draw() {
  const stay = atBottom();
  let news = false;
  for (const entry of queue.splice(0)) {
    talk.add(entry);
    news ||= !["delta", "output"].includes(entry.what.kind);
    if (entry.what.kind === "ended") end();
  }
  if (stay) window.scrollTo({ top: document.documentElement.scrollHeight });
  if (news) summary();
}

function take(event) {
  if (!queue.length) requestAnimationFrame(draw);
  queue.push(JSON.parse(event.data));
  // A page in the background draws no frames.
  if (document.hidden) draw();
}

function link(text) {
  $("link").hidden = !text;
  $("link").textContent = text ?? "";
}

function connect() {
  source = new EventSource(`${api}/events?after=${talk.last}`);
  source.onopen = () => { retryMs = 500; link(null); };
  source.onmessage = take;
  source.addEventListener("rewind", take);
  source.addEventListener("ended", take);
  source.onerror = () => {
    if (over) return source.close();
    link("The connection broke off; trying again…");
    if (source.readyState === EventSource.CLOSED) again();
  };
}

/** After an answer that ends an event source for good (204 where nothing will follow): tries anew, ever more slowly. */
async function again() {
  const state = await summary();
  if (over || state === "ended") return link(null);
  setTimeout(connect, retryMs);
  retryMs = Math.min(retryMs * 2, 15_000);
}

function end() {
  over = true;
  source?.close();
  link(null);
}

async function summary() {
  try {
    const run = await call("GET", api);
    document.title = `${line(run.title)} · Sallyport`;
    $("title").textContent = line(run.title);
    const pill = statePill(run.state);
    $("state").hidden = false;
    $("state").className = pill.className;
    $("state").textContent = pill.word;
    const doing = run.state.doing ? ` · ${line(run.state.doing)}` : "";
    $("facts").textContent = `${run.steps} steps · ${run.refusals} refused · by ${line(run.user)}${doing}`;
    const ended = run.state.state === "ended";
    $("stop").hidden = ended;
    $("speak").hidden = ended;
    problem(run.state.state === "held" ? new Error(run.state.why) : null);
    return run.state.state;
  } catch (error) {
    if (error.status === 404) over = true;
    problem(error);
    return null;
  }
}

async function speak(event) {
  event?.preventDefault();
  const text = $("message").value;
  if (!text.trim()) return;
  try {
    await call("POST", `${api}/messages`, { json: { text } });
    $("message").value = "";
    problem(null);
  } catch (error) {
    problem(error);
  }
}

async function stop() {
  $("confirm").close();
  $("stop").disabled = true;
  try {
    await call("POST", `${api}/stop`);
  } catch (error) {
    problem(error);
  }
  $("stop").disabled = false;
  summary();
}

$("network").href = `/log?session=${encodeURIComponent(id)}`;
$("speak").addEventListener("submit", speak);
$("message").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    speak();
  }
});
$("stop").addEventListener("click", () => $("confirm").showModal());
$("confirm-yes").addEventListener("click", stop);
$("confirm-no").addEventListener("click", () => $("confirm").close());
summary().then(() => { if (!over) connect(); });
setInterval(() => { if (!over && !document.hidden) summary(); }, 5000);
