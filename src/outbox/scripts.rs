//! The constants of the rules as Lua source, for a store whose statements are scripts.
use crate::limits::{
    BATCH_BYTES_MAX, CLAIM_SHRINK, HEARTBEAT_AHEAD_MAX, INSTANCE_RETENTION_FACTOR, REASON_CHARS_MAX, SUSPECT_DEATHS,
    TRIAL_DEATHS_MAX, TRIAL_INTERVAL,
};
use crate::rows::resolution::POISON_REASON;

/// Lua statements that define the constants as locals, one a line, to be placed before every script: `SUSPECT_DEATHS`,
/// `TRIAL_DEATHS_MAX`, `TRIAL_INTERVAL_MS`, `CLAIM_SHRINK`, `BATCH_BYTES_MAX`, `REASON_CHARS_MAX`, `INSTANCE_RETENTION_FACTOR`,
/// `HEARTBEAT_AHEAD_MAX_MS`, and the `string.format` template `POISON_REASON`.
pub fn rules_for_scripts() -> String {
    format!(
        "local SUSPECT_DEATHS = {SUSPECT_DEATHS}
local TRIAL_DEATHS_MAX = {TRIAL_DEATHS_MAX}
local TRIAL_INTERVAL_MS = {}
local CLAIM_SHRINK = {CLAIM_SHRINK}
local BATCH_BYTES_MAX = {BATCH_BYTES_MAX}
local REASON_CHARS_MAX = {REASON_CHARS_MAX}
local INSTANCE_RETENTION_FACTOR = {INSTANCE_RETENTION_FACTOR}
local HEARTBEAT_AHEAD_MAX_MS = {}
local POISON_REASON = '{POISON_REASON}'
",
        TRIAL_INTERVAL.as_millis(),
        HEARTBEAT_AHEAD_MAX.as_millis()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_constant_is_one_local_of_the_script() {
        let expected = "local SUSPECT_DEATHS = 3
local TRIAL_DEATHS_MAX = 2
local TRIAL_INTERVAL_MS = 10000
local CLAIM_SHRINK = 8
local BATCH_BYTES_MAX = 16777216
local REASON_CHARS_MAX = 256
local INSTANCE_RETENTION_FACTOR = 1000
local HEARTBEAT_AHEAD_MAX_MS = 1000
local POISON_REASON = 'poison: the worker or the process crashed in %d attempts that sent only this event'
";
        assert_eq!(rules_for_scripts(), expected);
        assert!(!POISON_REASON.contains(['\'', '\\']), "it is part of a Lua string");
    }
}
