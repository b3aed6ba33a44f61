// The network log: filters in the address, pages by sequence number, one record in detail.
import { $, call, el, problem } from "./page.js";
import { line } from "./plain.js";

const PAGE = 100;
const EVERY_MS = 2500;
const FIELDS = ["session", "host", "verdict"];
const LOOK = { allowed: "good", denied: "bad", malformed: "bad", asked: "warn", "upstream-failed": "warn", granted: "live" };
const query = new URLSearchParams(location.search);
let before = null;
let oldest = null;
let known = "";

for (const name of FIELDS) $(name).value = query.get(name) ?? "";

function bytes(count) {
  if (!count) return "";
  const units = ["B", "kB", "MB", "GB"];
  const step = Math.min(Math.floor(Math.log10(count) / 3), units.length - 1);
  return `${(count / 1000 ** step).toFixed(step && count / 1000 ** step < 10 ? 1 : 0)} ${units[step]}`;
}

function place(record) {
  return record.host && `${record.host}${record.port === 443 ? "" : `:${record.port}`}`;
}

function what(record) {
  if (!record.host && !record.method) return `${record.kind} ${record.rule}`.trimEnd();
  return record.method ? `${record.method} ${place(record)}${record.path ?? ""}` : `${record.kind} ${place(record)}`;
}

function row(record) {
  const time = record.at.slice(11, 23).padEnd(12, "0");
  const open = el("button", { type: "button", className: "link", onclick: () => detail(record) },
    el("time", { dateTime: record.at, title: record.at, textContent: time }));
  const more = record.verdict === "allowed" ? record.credentials_used.length ? `with ${record.credentials_used.join(", ")}` : "" : record.reason;
  return el("tr", { className: line(record.verdict), "data-sequence": record.sequence },
    el("td", {}, open),
    el("td", {}, el("span", { className: `pill ${LOOK[record.verdict] ?? ""}`, textContent: line(record.verdict) })),
    el("td", { className: "what" }, el("code", { textContent: line(what(record)) }),
      more ? el("div", { className: "faint small", textContent: line(more) }) : null),
    el("td", { className: "number", "data-label": "status", textContent: record.status ?? "" }),
    el("td", { className: "number", "data-label": "out", textContent: bytes(record.bytes_out) }),
    el("td", { className: "number", "data-label": "in", textContent: bytes(record.bytes_in) }),
    el("td", { className: "number", "data-label": "took", textContent: `${record.duration_ms} ms` }));
}

const REMEDIES = {
  none: "nothing: asking is useless",
  "request-access": "the agent may ask, and the policy grants it at once",
  "ask-person": "the agent may ask, and a person decides",
};

function detail(record) {
  const refusal = record.refusal;
  const facts = {
    Decision: record.verdict,
    What: what(record),
    Rule: record.rule,
    Reason: record.reason,
    Remedy: refusal ? REMEDIES[refusal.remedy.kind] ?? refusal.remedy.kind : null,
    Hint: refusal?.hint,
    Status: record.status,
    Run: record.session,
    User: record.user,
    Time: record.at,
    Duration: `${record.duration_ms} ms`,
    "Bytes out / in": `${record.bytes_out} / ${record.bytes_in}`,
    "Credentials put in": record.credentials_used.join(", "),
    "Taken out of the answer": record.credentials_redacted.join(", "),
    Ending: record.ending,
    "Decision id": record.id,
    Policy: record.policy_hash,
    Record: record.sequence,
    Chain: record.chain,
  };
  const shown = Object.entries(facts).filter(([, value]) => value !== null && value !== undefined && value !== "");
  $("detail-facts").replaceChildren(...shown.flatMap(([name, value]) => {
    const text = line(value);
    const inside = name === "Run" ? el("a", { href: `/runs/${encodeURIComponent(value)}`, textContent: text }) : text;
    return [el("dt", { textContent: name }), el("dd", {}, inside)];
  }));
  $("detail").showModal();
}

async function load() {
  const wanted = new URLSearchParams({ limit: PAGE });
  for (const name of FIELDS) if ($(name).value.trim()) wanted.set(name, $(name).value.trim());
  if (before !== null) wanted.set("before", before);
  try {
    const records = await call("GET", `/api/audit?${wanted}`);
    problem(null);
    show(records);
  } catch (error) {
    problem(error);
  }
}

function show(records) {
  oldest = records.at(-1)?.sequence ?? null;
  $("empty").hidden = records.length > 0;
  $("table").hidden = records.length === 0;
  $("older").disabled = records.length < PAGE;
  $("newest").disabled = before === null;
  $("range").textContent = records.length ? `records ${oldest} to ${records[0].sequence}` : "";
  const now = `${oldest}-${records[0]?.sequence}-${records.length}-${location.search}`;
  if (now === known) return;
  known = now;
  const focused = document.activeElement?.closest("tr")?.dataset.sequence;
  $("rows").replaceChildren(...records.map(row));
  if (focused) $("rows").querySelector(`tr[data-sequence="${CSS.escape(focused)}"] button`)?.focus();
}

function filter(event) {
  event?.preventDefault();
  const chosen = new URLSearchParams();
  for (const name of FIELDS) if ($(name).value.trim()) chosen.set(name, $(name).value.trim());
  history.replaceState(null, "", chosen.size ? `?${chosen}` : location.pathname);
  before = null;
  load();
}

$("filters").addEventListener("submit", filter);
$("verdict").addEventListener("change", filter);
$("clear").addEventListener("click", (event) => {
  event.preventDefault();
  for (const name of FIELDS) $(name).value = "";
  filter();
});
$("older").addEventListener("click", () => { before = oldest; load(); });
$("newest").addEventListener("click", () => { before = null; load(); });
$("detail-close").addEventListener("click", () => $("detail").close());
call("GET", "/api/runs")
  .then((runs) => $("runs").replaceChildren(...runs.slice(0, 50).map((run) => el("option", { value: run.id, label: line(run.title) }))))
  .catch(() => {});
load();
setInterval(() => { if ($("live").checked && before === null && !document.hidden && !$("detail").open) load(); }, EVERY_MS);
