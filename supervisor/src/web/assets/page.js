// What every page uses: elements, calls of the API, times, who is logged in.
import { line } from "./plain.js";

/** An element: text is always set as text. `props` are properties, or attributes where they hold a dash. */
export function el(name, props = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === null) continue;
    if (key.includes("-") || key === "role" || key === "scope") node.setAttribute(key, value);
    else node[key] = value;
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export const $ = (id) => document.getElementById(id);

/** What the server said no with: a problem document (RFC 9457). */
export class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail ?? `the server answered ${status}`);
    this.status = status;
    this.problems = problem.policy ?? [];
  }
}

/** Calls the API. Gives the JSON answer, or null where there is none. */
export async function call(method, path, { json, text, headers = {} } = {}) {
  const request = { method, headers: { ...headers } };
  if (json !== undefined) {
    request.headers["content-type"] = "application/json";
    request.body = JSON.stringify(json);
  } else if (text !== undefined) {
    request.headers["content-type"] = "text/plain; charset=utf-8";
    request.body = text;
  }
  let response;
  try {
    response = await fetch(path, request);
  } catch {
    throw new Error("the supervisor does not answer; is `sallyport up` running?");
  }
  if (response.status === 401) location.reload();
  if (!response.ok) throw new Refused(response.status, await response.json().catch(() => ({})));
  return response.status === 204 ? null : response.json();
}

/** Shows an error above the page's content, or takes it away. */
export function problem(error) {
  const box = $("problem");
  box.hidden = !error;
  box.textContent = error ? line(error.message) : "";
}

/** A time for people: today's time, else date and time; exact in the tooltip. */
export function when(text) {
  const at = new Date(text);
  const today = at.toDateString() === new Date().toDateString();
  const shape = today ? { timeStyle: "short" } : { dateStyle: "medium", timeStyle: "short" };
  return el("time", { dateTime: text, title: text, textContent: new Intl.DateTimeFormat(undefined, shape).format(at) });
}

/** Where a run stands, as a pill. */
export function statePill(state) {
  const ends = { done: ["done", "good"], failed: ["failed", "bad"], stopped: ["stopped", "warn"] };
  const looks = { queued: ["queued", ""], running: ["running", "live"], held: ["held", "warn"] };
  const [word, look] = (state.state === "ended" ? ends[state.outcome] : looks[state.state]) ?? [state.state, ""];
  return { word, className: `pill ${look}`.trim() };
}

const here = location.pathname.startsWith("/runs") || location.pathname === "/new" ? "/" : location.pathname;
document.querySelector(`nav a[href="${here}"]`)?.setAttribute("aria-current", "page");

call("GET", "/api/me")
  .then((me) => { $("who").replaceChildren(line(me.user), " · ", el("a", { href: "/logout", textContent: "log out" })); })
  .catch(() => {});
