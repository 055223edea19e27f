// List the constants, largest first, without those whose value is shown with the op.

function weightList() {
  const every = data.functions.flatMap((graph) => graph.ops.filter(isConstant));
  const constants = every.filter((op) => op.value === undefined && !op.shared);
  constants.sort((a, b) => b.bytes - a.bytes);
  const largest = constants.length ? constants[0].bytes : 1;
  const small = every.filter((op) => op.value !== undefined).length;
  const shared = every.filter((op) => op.shared).length;
  const rest = [
    small ? `and ${counted(small, "constant")} of a few bytes, shown with their ops` : "",
    shared ? `${counted(shared, "further use")} of constants above are stored once` : "",
  ];
  const notes = rest.filter(Boolean).map((line) => make("p", "quiet", line));
  return [listed(constants, (op) => weight(op, largest), 50), ...notes];
}

function weight(op, largest) {
  const [user] = usersOf(op).filter((each) => !isEnd(each));
  const place = make("span", "where", text(op.name) || moduleOf(op) || "no module recorded");
  const use = user ? button(titleOf(user), "link", () => reveal(user)) : make("span", "", "unused");
  return make(
    "div",
    "weight",
    make("span", "what", place, use),
    make("code", "type", typesOf(op)),
    make("span", "figure", bytes(op.bytes)),
    bar(op.bytes / (largest || 1)),
  );
}
