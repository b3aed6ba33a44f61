// The list of runs, kept fresh while it is looked at.
import { $, call, el, problem, statePill, when } from "./page.js";
import { line } from "./plain.js";

const EVERY_MS = 3000;
let known = "";

function row(run) {
  const pill = statePill(run.state);
  const more = run.state.doing ?? run.state.text ?? run.state.why ?? "";
  return el("tr", {},
    el("td", {},
      el("a", { className: "title", href: `/runs/${encodeURIComponent(run.id)}`, textContent: line(run.title) }),
      more ? el("div", { className: "faint small", textContent: line(more) }) : null),
    el("td", {}, el("span", { className: pill.className, textContent: pill.word })),
    el("td", { className: "number", "data-label": "steps", textContent: run.steps }),
    el("td", { className: "number", "data-label": "refused", textContent: run.refusals }),
    el("td", { className: "small" }, when(run.created_at), el("span", { className: "faint", textContent: ` by ${line(run.user)}` })));
}

/** One line where a policy's file is broken or a run is closed by it; the page of policies tells the rest. */
async function policies() {
  const state = await call("GET", "/api/policies").catch(() => null);
  const broken = state?.policies.filter((policy) => policy.broken.length).map((policy) => policy.key) ?? [];
  const closed = state?.closed.length ?? 0;
  const said = [
    broken.length ? `The file of ${broken.join(", ")} cannot be used; what was in force stays so.` : "",
    closed ? `Nothing passes for ${closed} run${closed === 1 ? "" : "s"}.` : "",
  ].filter(Boolean).join(" ");
  $("policies").hidden = !said;
  if (said) $("policies").replaceChildren(line(said), " ", el("a", { href: "/policies", textContent: "Policies" }));
}

async function refresh() {
  try {
    await policies();
    const runs = await call("GET", "/api/runs");
    problem(null);
    const now = JSON.stringify(runs);
    if (now === known) return;
    known = now;
    $("empty").hidden = runs.length > 0;
    $("table").hidden = runs.length === 0;
    const focused = document.activeElement?.getAttribute("href");
    $("rows").replaceChildren(...runs.map(row));
    if (focused) [...$("rows").querySelectorAll("a")].find((a) => a.getAttribute("href") === focused)?.focus();
  } catch (error) {
    problem(error);
  }
}

refresh();
setInterval(() => { if (!document.hidden) refresh(); }, EVERY_MS);
document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
