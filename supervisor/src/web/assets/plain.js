// Text of others made harmless: control, line-separating and bidirectional characters are shown as escapes.
const UNSAFE = /[\p{Cc}\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu;

function shown(character) {
  return `\\u{${character.codePointAt(0).toString(16)}}`;
}

/** For one line: line breaks are escaped too. */
export function line(text) {
  return String(text).replace(UNSAFE, shown);
}

/** For several lines: line breaks and tabs stay. */
export function block(text) {
  return String(text).replace(/\r\n/g, "\n").replace(UNSAFE, (c) => (c === "\n" || c === "\t" ? c : shown(c)));
}
