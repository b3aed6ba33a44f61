// Standing policies: what is in force, what is broken, every version with its text, and the way back to one.
import { $, call, el, problem, when } from "./page.js";
import { block, line } from "./plain.js";

const EVERY_MS = 3000;
let known = "";
let asked = null;

const path = (key) => `/api/policies/${key.split("/").map(encodeURIComponent).join("/")}`;
const short = (hash) => el("code", { textContent: hash.slice(0, 12), title: hash });
const chosen = () => decodeURIComponent(location.hash.slice(1));

/** What is wrong with a policy's file, place by place. */
function banner(policy) {
  const list = el("ul", { className: "problems" }, ...policy.broken.map((fault) =>
    el("li", { textContent: line(`${fault.file}:${fault.line}:${fault.column}: ${fault.message}${fault.hint ? ` (${fault.hint})` : ""}`) })));
  const kept = policy.version ? `version ${policy.version.number} stays in force` : "no version of it is in force";
  return el("div", { className: "notice bad", role: "alert" },
    el("strong", { textContent: `The file of ${policy.key} cannot be used; ${kept}.` }), list);
}

function row(policy) {
  const version = policy.version;
  const pill = policy.broken.length ? ["broken file", "pill bad"] : policy.differs ? ["file differs", "pill warn"]
    : version ? ["in force", "pill good"] : ["ended", "pill"];
  return el("tr", {},
    el("td", {}, el("a", { className: "title", href: `#${policy.key}`, textContent: line(policy.key) })),
    el("td", {}, version ? `version ${version.number} ` : "none ", el("span", { className: pill[1], textContent: pill[0] })),
    el("td", {}, version ? short(version.hash) : null),
    el("td", { textContent: version ? line(version.author) : "" }),
    el("td", { className: "small" }, version ? when(version.at) : null));
}

function versionRow(key, version, inForce) {
  const look = el("button", { type: "button", className: "link", textContent: `version ${version.number}`,
    onclick: () => show(key, version.number).catch(problem) });
  const back = inForce || version.withdrawn ? null : el("button", { type: "button", textContent: "Roll back",
    onclick: () => { asked = { key, to: version.number }; ask(); } });
  return el("tr", {},
    el("td", {}, look, " ", inForce ? el("span", { className: "pill good", textContent: "in force" }) : null,
      el("div", { className: "faint small" }, version.withdrawn ? "withdrawn" : short(version.hash))),
    el("td", { className: "small" }, line(version.author), el("div", {}, when(version.at))),
    el("td", { className: "small", textContent: line(version.note) }),
    el("td", {}, back));
}

function ask() {
  $("confirm-text").textContent = `Version ${asked.to} of ${asked.key} becomes the newest version and is in force for every run at once.`;
  $("confirm").showModal();
}

async function show(key, number) {
  const edition = await call("GET", `${path(key)}/versions/${number}`);
  $("texts").replaceChildren(...edition.texts.map((text) => el("section", {},
    el("h3", { textContent: line(`${text.name}, version ${number}`) }),
    el("pre", { textContent: block(text.text), tabIndex: 0 }))));
}

/** The policy that the address names, with its versions. */
async function one(policies) {
  const policy = policies.find((policy) => policy.key === chosen());
  $("one").hidden = !policy;
  if (!policy) return;
  const versions = await call("GET", `${path(policy.key)}/versions`).catch((error) => {
    if (error.status === 404) return [];
    throw error;
  });
  $("one-title").textContent = line(policy.key);
  const number = policy.version?.number;
  $("versions").replaceChildren(...versions.map((version) => versionRow(policy.key, version, version.number === number)));
  $("texts").replaceChildren();
  if (number) await show(policy.key, number);
}

async function refresh({ again = false, all = call("GET", "/api/policies") } = {}) {
  try {
    const state = await all;
    problem(null);
    const now = JSON.stringify(state);
    if (now === known && !again) return;
    known = now;
    const notes = state.policies.filter((policy) => policy.broken.length).map(banner);
    const closed = state.closed.map((run) => el("p", { className: "notice bad", textContent: line(`Nothing passes for run ${run}: its policy cannot be used.`) }));
    const strays = state.strays.length ? [el("p", { className: "notice warn", textContent: line(`No policy uses these files: ${state.strays.join(", ")}`) })] : [];
    $("broken").replaceChildren(...notes, ...closed, ...strays);
    $("empty").hidden = state.policies.length > 0;
    $("table").hidden = state.policies.length === 0;
    $("rows").replaceChildren(...state.policies.map(row));
    await one(state.policies);
  } catch (error) {
    problem(error);
  }
}

$("reload").addEventListener("click", () => refresh({ again: true, all: call("POST", "/api/policies/reload", { json: {} }) }));
$("confirm-no").addEventListener("click", () => $("confirm").close());
$("confirm-yes").addEventListener("click", async () => {
  $("confirm").close();
  try {
    await call("POST", path(asked.key), { json: { do: "rollback", to: asked.to } });
    await refresh({ again: true });
  } catch (error) {
    problem(error);
  }
});
window.addEventListener("hashchange", () => refresh({ again: true }));
refresh();
setInterval(() => { if (!document.hidden && !$("confirm").open) refresh(); }, EVERY_MS);
