// Whether a value is what a JSON Schema describes, in one sentence on the first thing that is not.
// The keywords are those of trace.schema.json, with their meaning in draft 2020-12; the server
// checks traces by the same file.

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const TYPES = {
  object: isObject,
  array: Array.isArray,
  string: (value) => typeof value === "string",
  boolean: (value) => typeof value === "boolean",
  null: (value) => value === null,
  integer: Number.isInteger,
  number: (value) => typeof value === "number" && Number.isFinite(value),
};
const NOTES = ["$schema", "$defs", "title", "description", "then"];

export function describe(value) {
  if (typeof value === "string") return JSON.stringify(value.length > 40 ? value.slice(0, 40) + "\u2026" : value);
  if (Array.isArray(value)) return `a list of ${value.length}`;
  return isObject(value) ? "an object" : String(value);
}

const says = (at, text) => `${at ? at + ": " : ""}${text}`;
const join = (at, name) => (at ? `${at}.${name}` : name);
const own = (object, name) => Object.prototype.hasOwnProperty.call(object, name);

// Each: (value, what the keyword says, place, schema, root) -> sentence or null. Those about
// lists, texts and so on pass over what is none.
const KEYWORDS = {
  type(value, wanted, at) {
    const names = [].concat(wanted);
    if (names.some((name) => TYPES[name](value))) return null;
    return says(at, `expected ${names.join(" or ")}, found ${describe(value)}`);
  },
  const: (value, wanted, at) => KEYWORDS.enum(value, [wanted], at),
  enum(value, wanted, at) {
    if (wanted.includes(value)) return null;
    return says(at, `expected ${wanted.map((each) => JSON.stringify(each)).join(" or ")}, found ${describe(value)}`);
  },
  minimum: (value, least, at) => (typeof value === "number" && value < least
    ? says(at, `expected at least ${least}, found ${value}`) : null),
  maximum: (value, most, at) => (typeof value === "number" && value > most
    ? says(at, `expected at most ${most}, found ${value}`) : null),
  maxLength: (value, most, at) => (typeof value === "string" && value.length > most && [...value].length > most
    ? says(at, `expected at most ${most} characters, found ${value.length}`) : null),
  minItems: (value, least, at) => (Array.isArray(value) && value.length < least
    ? says(at, `expected at least ${least} entries, found ${value.length}`) : null),
  maxItems: (value, most, at) => (Array.isArray(value) && value.length > most
    ? says(at, `expected at most ${most} entries, found ${value.length}`) : null),
  uniqueItems: (value, wanted, at) => (wanted && Array.isArray(value) && new Set(value).size !== value.length
    ? says(at, "expected no entry twice") : null),
  items: (value, schema, at, _, root) => (Array.isArray(value)
    ? first(value, (item, i) => problem(item, schema, root, `${at}[${i}]`)) : null),
  prefixItems: (value, schemas, at, _, root) => (Array.isArray(value)
    ? first(value, (item, i) => (i < schemas.length ? problem(item, schemas[i], root, `${at}[${i}]`) : null)) : null),
  required: (value, names, at) => (isObject(value)
    ? first(names, (name) => (own(value, name) ? null : says(join(at, name), "is missing"))) : null),
  properties: (value, schemas, at, _, root) => (isObject(value)
    ? first(Object.keys(schemas), (name) => (own(value, name)
      ? problem(value[name], schemas[name], root, join(at, name)) : null)) : null),
  additionalProperties: (value, allowed, at, schema) => (isObject(value) && !allowed
    ? first(Object.keys(value), (name) => (own(schema.properties, name)
      ? null : says(join(at, name.slice(0, 40)), "is not known"))) : null),
  $ref: (value, name, at, _, root) => problem(value, root.$defs[name.replace("#/$defs/", "")], root, at),
  allOf: (value, schemas, at, _, root) => first(schemas, (schema) => problem(value, schema, root, at)),
  anyOf(value, schemas, at, _, root) {
    const found = schemas.map((schema) => problem(value, schema, root, at));
    return found.includes(null) ? null : found[found.length - 1];
  },
  if: (value, condition, at, schema, root) => (problem(value, condition, root, at) === null
    ? problem(value, schema.then, root, at) : null),
};

function first(list, check) {
  for (let i = 0; i < list.length; i += 1) {
    const found = check(list[i], i);
    if (found !== null) return found;
  }
  return null;
}

export function problem(value, schema, root = schema, at = "") {
  return first(Object.keys(schema), (keyword) => {
    if (NOTES.includes(keyword)) return null;
    if (!own(KEYWORDS, keyword)) throw new Error(`the schema's keyword ${keyword} is not known`);
    return KEYWORDS[keyword](value, schema[keyword], at, schema, root);
  });
}
