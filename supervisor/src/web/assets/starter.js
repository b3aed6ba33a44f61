// What an empty form begins with.
export const POLICY = `version: 1
name: my-run
default: deny

rules:
  - id: read-example
    to: {host: example.com, methods: [GET, HEAD]}
    effect: allow

  - id: ask-for-docs
    to: {host: "*.example.org", methods: [GET]}
    effect: deny
    grantable: {by: rule, uses: 20, expires: 1h}
    hint: Say what you need it for.
`;

export const TURNS = `- say: I look around.
  tools:
    - bash: {command: "uname -a; id; ls /"}
- say: Now I try the door.
  tools:
    - bash: {command: "curl -sS https://example.net/"}
- tools:
    - done: {summary: "The door is shut where nobody opened it.", success: true}
`;

export const TASK = "Look around in your machine, and see what the door lets through.";
