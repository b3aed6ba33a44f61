// Says whether every amount of invoice.json is a number.
const isNumber = require("is-number");
const lines = require("./invoice.json");
const wrong = lines.filter((line) => !isNumber(line.quantity) || !isNumber(line.unit_price));
if (wrong.length > 0) {
  console.error("not a number:", wrong);
  process.exit(1);
}
console.log(`${lines.length} lines checked`);
