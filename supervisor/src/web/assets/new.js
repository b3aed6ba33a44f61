// The launch form: checks the policy as it is typed, starts the run once however often the button is pressed.
import { $, Refused, call, el, problem } from "./page.js";
import { line } from "./plain.js";
import { POLICY, TASK, TURNS } from "./starter.js";

const CHECK_AFTER_MS = 350;
let waiting = 0;
let asked = 0;
let key = crypto.randomUUID();
let registries = null;

$("policy").value = POLICY;
$("turns").value = TURNS;
$("task").value = TASK;
$("title").value = "A first look";

/** Shows line numbers beside the text, scrolled with it. */
function gutter() {
  const lines = $("policy").value.split("\n").length;
  $("gutter").textContent = Array.from({ length: lines }, (_, at) => at + 1).join("\n");
  $("gutter").scrollTop = $("policy").scrollTop;
}

function goTo(wanted) {
  const text = $("policy").value;
  const lines = text.split("\n");
  const at = Math.min(Math.max(wanted, 1), lines.length) - 1;
  const start = lines.slice(0, at).reduce((sum, one) => sum + one.length + 1, 0);
  $("policy").focus();
  $("policy").setSelectionRange(start, start + lines[at].length);
  const height = $("policy").scrollHeight / lines.length;
  $("policy").scrollTop = Math.max(0, at - 6) * height;
}

function showProblems(problems) {
  $("policy-problems").replaceChildren(...problems.map((one) => el("li", { className: one.severity },
    el("button", { type: "button", className: "link", textContent: `line ${one.line}:${one.column}`, onclick: () => goTo(one.line) }),
    `  ${line(one.message)}`,
    one.hint ? el("div", { className: "faint", textContent: line(one.hint) }) : null)));
  const errors = problems.filter((one) => one.severity === "error").length;
  $("verdict").className = `verdict-line ${errors ? "bad" : "good"}`;
  const counted = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;
  const warnings = problems.length - errors;
  $("verdict").textContent = errors ? counted(errors, "error") : `The policy is good${warnings ? `, with ${counted(warnings, "warning")}` : ""}.`;
  $("policy").setAttribute("aria-invalid", errors > 0);
}

async function check() {
  const mine = ++asked;
  try {
    const found = await call("POST", `/api/policy/check${$("registries").checked ? "?registries=host" : ""}`, { text: $("policy").value });
    if (mine === asked) showProblems(found.problems);
  } catch (error) {
    $("verdict").className = "verdict-line bad";
    $("verdict").textContent = line(error.message);
  }
}

function later() {
  gutter();
  clearTimeout(waiting);
  waiting = setTimeout(check, CHECK_AFTER_MS);
}

function showModel() {
  const kind = $("model-kind").value;
  for (const part of document.querySelectorAll("[data-model]")) part.hidden = !part.dataset.model.split(" ").includes(kind);
}

function model() {
  const kind = $("model-kind").value;
  if (kind === "scripted") return { kind, turns: $("turns").value };
  const chosen = { kind, model: $("model-name").value.trim() };
  if ($("base-url").value.trim()) chosen.base_url = $("base-url").value.trim();
  return chosen;
}

function variables() {
  const env = {};
  for (const [at, text] of $("env").value.split("\n").entries()) {
    if (!text.trim()) continue;
    const split = text.indexOf("=");
    if (split < 1) throw new Error(`variables, line ${at + 1}: write NAME=value`);
    env[text.slice(0, split).trim()] = text.slice(split + 1);
  }
  return env;
}

async function request() {
  const env = variables();
  const policies = [{ name: "policy.yaml", text: $("policy").value }];
  if ($("registries").checked) {
    registries ??= await call("GET", "/api/host/registries");
    policies.push(registries.policy);
    for (const [name, value] of Object.entries(registries.env)) env[name] ??= value;
  }
  return {
    title: $("title").value.trim(),
    task: $("task").value,
    policies,
    model: model(),
    environment: { name: $("environment-name").value.trim(), env },
    who: { repository: $("repository").value.trim(), environment: $("environment-name").value.trim() },
  };
}

async function start(event) {
  event.preventDefault();
  problem(null);
  const missing = ["title", "task"].find((id) => !$(id).value.trim());
  if (missing) {
    problem(new Error(`please give the ${missing}`));
    return $(missing).focus();
  }
  $("start").disabled = true;
  try {
    const run = await call("POST", "/api/runs", { json: await request(), headers: { "idempotency-key": key } });
    location.assign(`/runs/${encodeURIComponent(run.id)}`);
  } catch (error) {
    if (error instanceof Refused) {
      key = crypto.randomUUID();
      if (error.problems.length) showProblems(error.problems);
    }
    problem(error);
    $("problem").focus();
    $("start").disabled = false;
  }
}

$("policy").addEventListener("input", later);
$("policy").addEventListener("scroll", () => { $("gutter").scrollTop = $("policy").scrollTop; });
$("registries").addEventListener("change", check);
$("model-kind").addEventListener("change", showModel);
$("form").addEventListener("submit", start);
window.addEventListener("pageshow", () => { $("start").disabled = false; });
showModel();
gutter();
check();
