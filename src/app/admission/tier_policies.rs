//! Rate-limit policies by tier of callers and class of requests, as the configuration states them.
use std::collections::BTreeMap;

use ports::rate_limit::{CAPACITY_BOUNDS, RateLimitPolicy, WINDOW_BOUNDS};
use serde::Deserialize;

use crate::units;

/// The classes of requests: those that only read, and all others.
pub(crate) const CLASSES: [&str; 2] = ["read", "write"];
/// Most policies of a configuration. Tiers are few, and the text is one line.
const POLICIES_MAX: usize = 256;

/// At most one policy for each tier and class, under `tier:class`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub struct TierPolicies(BTreeMap<String, RateLimitPolicy>);

impl TierPolicies {
    /// Parses `gold:write=600/60s,gold:read=1200/60s`: tier and class, requests per window, and the window. The empty text has no policy.
    ///
    /// # Errors
    /// The accepted form, as the end of a sentence with "must be".
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut policies = BTreeMap::new();
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            let policy = policy(entry).ok_or_else(|| expected(entry))?;
            let name = policy.name.to_string();
            if policies.insert(name, policy).is_some() || policies.len() > POLICIES_MAX {
                return Err(format!(
                    "one policy for each tier and class, at most {POLICIES_MAX}; {entry:?} is too many"
                ));
            }
        }
        Ok(Self(policies))
    }

    /// The policy of this tier and class; `None` where the default applies.
    pub fn find(&self, tier: &str, class: &str) -> Option<&RateLimitPolicy> {
        self.0.get(&format!("{tier}:{class}"))
    }
}

impl TryFrom<String> for TierPolicies {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
    }
}

fn policy(entry: &str) -> Option<RateLimitPolicy> {
    let (name, limit) = entry.split_once('=')?;
    let (tier, class) = name.trim().rsplit_once(':')?;
    let (capacity, window) = limit.trim().split_once('/')?;
    let capacity = capacity.trim().parse().ok().filter(|capacity| CAPACITY_BOUNDS.contains(capacity))?;
    let window = units::duration(window.trim()).ok().filter(|window| WINDOW_BOUNDS.contains(window))?;
    let valid = !tier.is_empty() && CLASSES.contains(&class);
    valid.then(|| RateLimitPolicy { name: format!("{tier}:{class}").into(), capacity, window })
}

fn expected(entry: &str) -> String {
    format!(
        "tier:class=capacity/window with the class {}, a capacity from {} to {} and a window from 500ms to 1d, separated by commas; \
         {entry:?} is not",
        CLASSES.join(" or "),
        CAPACITY_BOUNDS.start(),
        CAPACITY_BOUNDS.end(),
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_tier_and_class_has_its_own_policy() {
        let policies = TierPolicies::parse("gold:write=600/60s, gold:read = 5 / 500ms ,a:b:read=1000000/1d").unwrap();

        let limit =
            |tier, class| policies.find(tier, class).map(|policy| (&*policy.name, policy.capacity, policy.window));
        assert_eq!(limit("gold", "write"), Some(("gold:write", 600, Duration::from_secs(60))));
        assert_eq!(limit("gold", "read"), Some(("gold:read", 5, Duration::from_millis(500))));
        assert_eq!(limit("a:b", "read"), Some(("a:b:read", 1_000_000, Duration::from_secs(86_400))));
        assert_eq!((limit("gold", "other"), limit("silver", "write")), (None, None));
        assert_eq!(TierPolicies::parse(" ").unwrap(), TierPolicies::default());
    }

    #[test]
    fn a_policy_that_is_incomplete_or_out_of_bounds_is_refused_by_name() {
        let invalid = [
            "gold",
            "gold:write",
            "gold:write=600",
            "gold=600/60s",
            ":write=600/60s",
            "gold:delete=600/60s",
            "gold:write=0/60s",
            "gold:write=1000001/60s",
            "gold:write=-1/60s",
            "gold:write=600/60",
            "gold:write=600/499ms",
            "gold:write=600/2d",
            "gold:write=1/1s,gold:write=2/1s",
        ];
        for text in invalid {
            let mistake = TierPolicies::parse(text).unwrap_err();
            assert!(mistake.contains(text.rsplit(',').next().unwrap()), "{text}: {mistake}");
        }
    }
}
