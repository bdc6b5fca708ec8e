//! Settings of a session that change the text of a value. The trigger's function of an adopted table fixes those of the columns that it reads:
//! otherwise the same value would give two keys, headers or derived ids in two sessions.
use std::collections::BTreeSet;

/// Setting, value, and the types whose text depends on it. The values are the server's defaults, and UTC.
const SETTINGS: [(&str, &str, &[&str]); 5] = [
    ("bytea_output", "hex", &["bytea"]),
    ("DateStyle", "ISO, YMD", &["date", "timestamp", "timestamptz"]),
    ("TimeZone", "UTC", &["timestamptz"]),
    ("IntervalStyle", "postgres", &["interval"]),
    ("extra_float_digits", "1", &["float4", "float8", "path", "polygon", "circle"]),
];

/// Per column of a table PostgreSQL's own types that are part of its type: of a domain its base type, of an array its elements, of a composite type
/// its attributes, of a range its bounds. A `point` is an array of `float8` here.
pub(crate) const PART_TYPES: &str = "WITH RECURSIVE part (name, type) AS (
       SELECT a.attname, a.atttypid FROM pg_attribute a WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped
     UNION
       SELECT part.name, nested.type FROM part JOIN pg_type t ON t.oid = part.type CROSS JOIN LATERAL (
           SELECT t.typbasetype UNION ALL SELECT t.typelem
           UNION ALL SELECT r.rngsubtype FROM pg_range r WHERE t.oid IN (r.rngtypid, r.rngmultitypid)
           UNION ALL SELECT a.atttypid FROM pg_attribute a
             WHERE t.typtype = 'c' AND a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped) nested (type)
       WHERE nested.type <> 0)
     SELECT part.name::text, array_agg(t.typname::text) FROM part JOIN pg_type t ON t.oid = part.type
     WHERE t.typnamespace = 'pg_catalog'::regnamespace GROUP BY part.name";

/// The clauses of a function that reads columns of these types. Each costs time in every call.
pub(crate) fn clauses(types: &BTreeSet<&str>) -> String {
    let needed = SETTINGS.iter().filter(|(_, _, dependent)| dependent.iter().any(|name| types.contains(name)));
    needed.map(|(setting, value, _)| format!(" SET {setting} = '{value}'")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_settings_that_change_a_text_are_fixed() {
        let cases = [
            (&["uuid", "text", "int8", "jsonb"][..], ""),
            (&["bytea", "text"], " SET bytea_output = 'hex'"),
            (&["timestamptz"], " SET DateStyle = 'ISO, YMD' SET TimeZone = 'UTC'"),
            (&["interval", "float4"], " SET IntervalStyle = 'postgres' SET extra_float_digits = '1'"),
        ];
        for (types, expected) in cases {
            assert_eq!(clauses(&types.iter().copied().collect()), expected, "{types:?}");
        }
    }
}
