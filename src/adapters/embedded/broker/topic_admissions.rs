//! The topics that clients may write to although they do not exist yet, so that many requests together keep the limit of topics.
use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;

/// The admitted topics, each with the number of its admissions that were not released.
#[derive(Default)]
pub(crate) struct TopicAdmissions(Mutex<HashMap<String, u64>>);

impl TopicAdmissions {
    /// Admits topics once more, if all of them are admitted already.
    pub(crate) fn admit_again(&self, names: &[&str]) -> bool {
        let mut admitted = self.0.lock();
        let all_admitted = names.iter().all(|name| admitted.contains_key(*name));
        if all_admitted {
            add(&mut admitted, names.iter().copied());
        }
        all_admitted
    }

    /// Admits topics, all or none, while the log has at most `topics_max` with them. Those that were admitted before and do not exist yet count too.
    pub(crate) fn admit(&self, existing: &[String], names: &[&str], topics_max: usize) -> bool {
        let mut admitted = self.0.lock();
        let existing: HashSet<&str> = existing.iter().map(String::as_str).collect();
        let missing: HashSet<&str> = names.iter().copied().filter(|name| !existing.contains(name)).collect();
        let new = missing.iter().filter(|name| !admitted.contains_key(**name)).count();
        let others = admitted.keys().filter(|name| !existing.contains(name.as_str())).count();
        if new > 0 && existing.len() + others + new > topics_max {
            return false;
        }
        add(&mut admitted, missing);
        true
    }

    /// Takes back one admission of each of these topics; those of other requests stay.
    pub(crate) fn release(&self, names: &[&str]) {
        let mut admitted = self.0.lock();
        for name in names {
            if let Some(admissions) = admitted.get_mut(*name) {
                *admissions -= 1;
                if *admissions == 0 {
                    admitted.remove(*name);
                }
            }
        }
    }
}

fn add<'a>(admitted: &mut HashMap<String, u64>, names: impl IntoIterator<Item = &'a str>) {
    for name in names {
        *admitted.entry(name.to_owned()).or_default() += 1;
    }
}
