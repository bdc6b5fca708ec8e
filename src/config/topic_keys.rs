//! Keys of the form `topics.NAME.field`: the name of a topic is a part of the key and may contain dots.
use std::fmt::Display;

/// Name of the template section for topics in `config/default.toml`.
const TEMPLATE_NAME: &str = "NAME";
/// Fields that may also be read from a file, and that are masked when printed.
const SECRET_FIELDS: [&str; 2] = ["consumer_url", "consumer_fallback_url"];

/// Name and field of a key of `[topics.NAME]`. The field is empty for a section without keys.
pub(super) fn split(key: &str) -> Option<(&str, &str)> {
    key.strip_prefix("topics.")?.rsplit_once('.')
}

/// The key of a topic's field.
pub(super) fn key_of(name: &str, field: &str) -> String {
    format!("topics.{name}.{field}")
}

/// The key of the template section `[topics.NAME]` in `config/default.toml`, which has the default of this key.
pub(super) fn template_of(key: &str) -> Option<String> {
    split(key).map(|(_, field)| key_of(TEMPLATE_NAME, field))
}

/// Whether a key belongs to the template section `[topics.NAME]`, which is no setting.
pub(super) fn is_template(key: &str) -> bool {
    split(key).is_some_and(|(name, _)| name == TEMPLATE_NAME)
}

/// Whether a key's value must not be shown.
pub(super) fn is_secret(key: &str) -> bool {
    split(key).is_some_and(|(_, field)| SECRET_FIELDS.contains(&field))
}

/// Whether a layer sets a key by its value or by the name of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueForm {
    Plain,
    InFile,
}

/// The topics that are known when a layer is read.
pub(super) struct KnownTopics<'a> {
    /// The topics that the layers name so far.
    pub names: Vec<&'a str>,
    /// The fields that a topic may have.
    pub fields: Vec<&'a str>,
}

impl KnownTopics<'_> {
    /// The key that a layer sets, and the form of its value. `from_environment` is whether the layer is the environment.
    ///
    /// # Errors
    /// The error: a name that no topic has, or a key that does not exist.
    pub(super) fn resolve(
        &self,
        key: &str,
        from_environment: bool,
        origin: &impl Display,
    ) -> Result<(String, ValueForm), String> {
        let Some((name, field)) = split(key) else {
            return Err(format!("{key}: must be a section such as [topics.\"invoices\"] with keys"));
        };
        let name = if from_environment { self.named_by_variable(name)? } else { name };
        if name == TEMPLATE_NAME {
            return Err(format!("{key}: NAME stands for the name of a topic, as in [topics.\"invoices\"]"));
        }
        let (field, form) = match field.strip_suffix("_file").filter(|secret| SECRET_FIELDS.contains(secret)) {
            Some(secret) => (secret, ValueForm::InFile),
            None => (field, ValueForm::Plain),
        };
        if !field.is_empty() && !self.fields.contains(&field) {
            let suggestion = self.nearest(key).map(|known| format!("; did you mean {known}?")).unwrap_or_default();
            return Err(format!("{key}: unknown key (from {origin}){suggestion}"));
        }
        if outbox::event_rules::check_topic(name).is_err() {
            return Err(format!(
                "topics.{name}: must be the name of a topic: letters, digits, dots, underscores and hyphens"
            ));
        }
        Ok((key_of(name, field), form))
    }

    /// The topic that a variable names. Variables have no hyphens and no small letters: a topic that the file names is recognised without
    /// them.
    fn named_by_variable<'n>(&'n self, name: &'n str) -> Result<&'n str, String> {
        let plain = |name: &str| name.to_lowercase().replace('-', "_");
        let similar: Vec<&str> = self.names.iter().copied().filter(|known| plain(known) == plain(name)).collect();
        match similar[..] {
            [] => Ok(name),
            [known] => Ok(known),
            [..] => Err(format!(
                "topics.{name}: a variable cannot distinguish {}; set it in the file",
                similar.join(" and ")
            )),
        }
    }

    /// The most similar key, also for one whose last dot should be an underscore.
    fn nearest(&self, key: &str) -> Option<String> {
        let rest = key.strip_prefix("topics.")?;
        let names: Vec<&str> = rest.match_indices('.').map(|(at, _)| &rest[..at]).collect();
        let candidates =
            self.fields.iter().flat_map(|field| names.iter().map(|name| (key_of(name, field), field.len())));
        let ranked = candidates.map(|(known, length)| (strsim::levenshtein(key, &known), known, length));
        let (distance, known, length) = ranked.min()?;
        (distance <= length.max(6) / 3).then_some(known)
    }
}
