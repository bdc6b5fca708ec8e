//! Three layers of settings, flattened to dotted keys, the later over the earlier. Unknown keys are refused here, with a suggestion.
mod config_errors;
mod environment;

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::path::Path;

use domain::EventType;

pub use config_errors::ConfigErrors;
pub use environment::Environment;
use environment::PREFIX;

use super::text_format::Node;
use super::topic_keys::{self, KnownTopics, ValueForm};

/// The compiled-in defaults. They name every key that exists.
pub(super) const DEFAULTS: &str = include_str!("../../config/default.toml");
/// Keys that may also be read from a file (`KEY_file`), and that are masked when printed.
pub(super) const SECRETS: [&str; 12] = [
    "http.console_secret",
    "auth.hs256_secret",
    "store.url",
    "redis.url",
    "broker.sasl.password",
    "consumer.url.ORDER_CREATED",
    "consumer.url.ORDER_STATUS_CHANGED",
    "consumer.url.ORDER_CANCELLED",
    "consumer.fallback_url.ORDER_CREATED",
    "consumer.fallback_url.ORDER_STATUS_CHANGED",
    "consumer.fallback_url.ORDER_CANCELLED",
    "tracing.headers",
];
/// Sections whose last part is the name of an event type, in capitals.
const BY_EVENT_TYPE: [&str; 8] = [
    "outbox.poison.",
    "outbox.fallback.",
    "consumer.handler.",
    "consumer.url.",
    "consumer.attempts_max.",
    "consumer.fallback.",
    "consumer.fallback_url.",
    "consumer.poison.",
];

/// The layer that set a value.
#[derive(Clone)]
pub(super) enum SettingOrigin {
    Default,
    File(String),
    Variable(String),
}

impl Display for SettingOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingOrigin::Default => f.write_str("default"),
            SettingOrigin::File(path) => f.write_str(path),
            SettingOrigin::Variable(name) => f.write_str(name),
        }
    }
}

/// A value as text. Not `Debug`: it may be secret.
#[derive(Clone)]
pub(super) struct Setting {
    pub text: String,
    pub origin: SettingOrigin,
    form: ValueForm,
}

impl Setting {
    fn default_of(text: String) -> Self {
        Self { text, origin: SettingOrigin::Default, form: ValueForm::Plain }
    }

    /// Whether one setting has the value itself and the other the name of a file with it. An empty text does not count as set.
    fn is_other_form_of(&self, other: &Self) -> bool {
        let is_set = |setting: &Self| setting.form == ValueForm::InFile || !setting.text.is_empty();
        self.form != other.form && is_set(self) && is_set(other)
    }
}

/// All settings by key, and the errors found so far.
#[derive(Clone)]
pub(super) struct Settings {
    pub by_key: BTreeMap<String, Setting>,
    pub errors: Vec<String>,
    defaults: BTreeMap<String, Setting>,
}

/// Reads the layers. A file that cannot be read at all is one error; those of the environment are still found.
pub(super) fn load(file: Option<&Path>, environment: &Environment) -> Settings {
    let table: toml::Table = DEFAULTS.parse().expect("config/default.toml is tested");
    let defaults = flatten(table).into_iter().map(|(key, text)| (key, Setting::default_of(text)));
    let defaults: BTreeMap<String, Setting> = defaults.collect();
    let mut settings = Settings { by_key: defaults.clone(), errors: Vec::new(), defaults };
    if let Some(path) = file {
        let shown = path.display().to_string();
        match read_table(path) {
            Ok(table) => settings.overlay(flatten(table), |_| SettingOrigin::File(shown.clone())),
            Err(error) => settings.errors.push(format!("{shown}: {error}")),
        }
    }
    let variables = environment.0.iter().filter_map(|(name, text)| {
        let key = name.strip_prefix(PREFIX)?.replace("__", ".").to_lowercase();
        Some((key, text.clone()))
    });
    settings.overlay(variables.collect(), |key| SettingOrigin::Variable(variable(key)));
    settings.add_topic_defaults();
    settings
}

fn read_table(path: &Path) -> Result<toml::Table, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    text.parse().map_err(|error: toml::de::Error| with_position(&text, &error))
}

/// The library's own message quotes the line, which may hold a secret.
fn with_position(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    format!("line {line}, column {column}: {}", error.message().trim())
}

impl Settings {
    /// The value of a key as text; empty for a key that does not exist.
    pub(super) fn text(&self, key: &str) -> &str {
        self.by_key.get(key).map(|setting| setting.text.as_str()).unwrap_or_default()
    }

    /// All values as sections of sections.
    pub(super) fn tree(&self) -> Node<'_> {
        let mut tree = Node::Section(BTreeMap::new());
        for (key, setting) in self.by_key.iter().filter(|(key, _)| !topic_keys::is_template(key)) {
            let path: Vec<&str> = match topic_keys::split(key) {
                Some((name, field)) => vec!["topics", name, field],
                None => key.split('.').collect(),
            };
            tree.insert(&path, &setting.text);
        }
        tree
    }

    /// Reports a value that cannot be used, and puts the default in its place.
    pub(super) fn refuse(&mut self, key: &str, expected: &str) {
        let template = topic_keys::template_of(key);
        let default = self.defaults.get(template.as_deref().unwrap_or(key));
        let default = default.expect("config/default.toml is tested: it has every key").clone();
        let Some(Setting { text, origin, .. }) = self.by_key.insert(key.to_owned(), default) else { return };
        assert!(!matches!(origin, SettingOrigin::Default), "config/default.toml: {key} must be {expected}");
        let shown = if is_secret(key) { "***" } else { &text };
        self.errors.push(format!("{key} = \"{shown}\" (from {origin}): must be {expected}"));
    }

    /// The topics that the layers name so far, and the fields that a topic may have.
    fn known_topics(&self) -> KnownTopics<'_> {
        let split = |key| topic_keys::split(key);
        let named = self.by_key.keys().filter(|key| !topic_keys::is_template(key));
        let mut names: Vec<&str> = named.filter_map(|key| Some(split(key)?.0)).collect();
        names.sort_unstable();
        names.dedup();
        let template = self.defaults.keys().filter(|key| topic_keys::is_template(key));
        KnownTopics { names, fields: template.filter_map(|key| Some(split(key)?.1)).collect() }
    }

    /// Gives each topic that some layer names the defaults of the keys that it does not set.
    fn add_topic_defaults(&mut self) {
        let KnownTopics { names, fields } = self.known_topics();
        let keys_of = |name| fields.iter().map(move |field| topic_keys::key_of(name, field));
        let keys: Vec<String> = names.iter().copied().flat_map(keys_of).collect();
        for key in keys {
            let template = topic_keys::template_of(&key).and_then(|template| self.defaults.get(&template));
            if let Some(default) = template.cloned() {
                self.by_key.entry(key).or_insert(default);
            }
        }
        // A key that only names a topic is not a setting.
        self.by_key.retain(|key, _| !key.ends_with('.'));
    }

    /// Applies a layer over the earlier ones. A layer may set a key once. A secret may be set directly or by a file, but not both, even in different
    /// layers.
    fn overlay(&mut self, layer: Vec<(String, String)>, origin: impl Fn(&str) -> SettingOrigin) {
        let mut set_here = Vec::new();
        for (key, text) in layer {
            // An empty section of a file.
            if text.is_empty() && self.sections().any(|section| section.eq_ignore_ascii_case(&key)) {
                continue;
            }
            match self.resolve(&key, text, &origin) {
                Ok((key, setting)) => {
                    let is_repeated = set_here.contains(&key);
                    let earlier = self.by_key.get(&key);
                    let conflict = earlier.filter(|earlier| is_repeated || earlier.is_other_form_of(&setting));
                    let conflict = conflict.map(|earlier| conflict_of(&key, earlier, &setting));
                    self.errors.extend(conflict);
                    self.by_key.insert(key.clone(), setting);
                    set_here.push(key);
                }
                Err(error) => self.errors.push(error),
            }
        }
    }

    /// The key as it is listed in the defaults, and its setting, whose text is read from its file where the key is `KEY_file`.
    fn resolve(
        &self,
        key: &str,
        text: String,
        origin: &impl Fn(&str) -> SettingOrigin,
    ) -> Result<(String, Setting), String> {
        let origin = origin(key);
        if key.starts_with("topics.") {
            let from_environment = matches!(origin, SettingOrigin::Variable(_));
            let (known, form) = self.known_topics().resolve(key, from_environment, &origin)?;
            let text = if form == ValueForm::InFile { read_secret(key, &text)? } else { text };
            return Ok((known, Setting { text, origin, form }));
        }
        if let Some(known) = self.defaults.keys().find(|known| known.eq_ignore_ascii_case(key)) {
            return Ok((known.clone(), Setting { text, origin, form: ValueForm::Plain }));
        }
        if let Some(secret) = secret_of_file(key) {
            let text = read_secret(key, &text)?;
            return Ok((secret.to_owned(), Setting { text, origin, form: ValueForm::InFile }));
        }
        if let Some(prefix) = BY_EVENT_TYPE.iter().find(|prefix| key.to_lowercase().starts_with(**prefix)) {
            let (name, types) = (key[prefix.len()..].to_uppercase(), EventType::ALL.map(EventType::as_str).join(", "));
            return Err(format!("{prefix}{name}: no such event type; there are {types}"));
        }
        let nearest = self.nearest(key).filter(|known| !known.eq_ignore_ascii_case(key.trim_end_matches('.')));
        let suggestion = nearest.map(|known| format!("; did you mean {known}?")).unwrap_or_default();
        let kind = if key.ends_with('.') { "section" } else { "key" };
        Err(format!("{}: unknown {kind} (from {origin}){suggestion}", key.trim_end_matches('.')))
    }

    /// The known key, or for a section the known section, with the smallest edit distance, if that is at most a third of the key's length.
    fn nearest(&self, key: &str) -> Option<&str> {
        let known: Vec<&str> = if key.ends_with('.') {
            self.sections().collect()
        } else {
            self.defaults.keys().map(String::as_str).collect()
        };
        let ranked = known.into_iter().map(|known| (strsim::levenshtein(key, known), known));
        let (distance, known) = ranked.min()?;
        (distance <= key.len().max(6) / 3).then_some(known.trim_end_matches('.'))
    }

    /// Each section that has keys, with the dot behind its name.
    fn sections(&self) -> impl Iterator<Item = &str> {
        let sections_of = |key: &str| key.match_indices('.').map(|(dot, _)| dot + 1).collect::<Vec<_>>();
        self.defaults.keys().flat_map(move |key| sections_of(key).into_iter().map(move |end| &key[..end]))
    }
}

/// The error of two settings of a key, of which one is probably unintended.
fn conflict_of(key: &str, earlier: &Setting, later: &Setting) -> String {
    let mut origins = vec![earlier.origin.to_string(), later.origin.to_string()];
    origins.dedup();
    let how = match earlier.form == later.form {
        true => "twice (the names differ only in letter case)".to_owned(),
        false => format!("both directly and by {key}_file"),
    };
    format!("{key}: set {how}; keep one (from {})", origins.join(" and "))
}

/// Whether the value of a key must not be shown.
pub(super) fn is_secret(key: &str) -> bool {
    SECRETS.contains(&key) || topic_keys::is_secret(key)
}

/// The secret in the file that a key names.
fn read_secret(key: &str, path: &str) -> Result<String, String> {
    let read =
        std::fs::read_to_string(path).map_err(|error| format!("{key} = {path}: the file cannot be read: {error}"))?;
    let secret = read.strip_suffix('\n').unwrap_or(&read).trim_end_matches('\r');
    if secret.is_empty() { Err(format!("{key} = {path}: the file is empty")) } else { Ok(secret.to_owned()) }
}

/// The secret that `KEY_file` reads; keys of event types are in capitals, and those of the environment in lower case.
fn secret_of_file(key: &str) -> Option<&'static str> {
    let (secret, suffix) = key.split_at_checked(key.len().checked_sub("_file".len())?)?;
    let known = SECRETS.iter().find(|known| known.eq_ignore_ascii_case(secret));
    known.copied().filter(|_| suffix.eq_ignore_ascii_case("_file"))
}

/// The environment variable of a key.
pub(super) fn variable(key: &str) -> String {
    format!("{PREFIX}{}", key.replace('.', "__").replace('-', "_").to_uppercase())
}

/// Dotted keys with their values as text; a list becomes its parts with commas between.
fn flatten(table: toml::Table) -> Vec<(String, String)> {
    let mut flat = Vec::new();
    for (name, value) in table {
        match value {
            // A section of a topic without keys names the topic, which is created.
            toml::Value::Table(section) if section.is_empty() => flat.push((format!("{name}."), String::new())),
            toml::Value::Table(section) => {
                flat.extend(flatten(section).into_iter().map(|(key, text)| (format!("{name}.{key}"), text)));
            }
            toml::Value::Array(list) => {
                flat.push((name, list.into_iter().map(scalar).collect::<Vec<_>>().join(",")));
            }
            value => flat.push((name, scalar(value))),
        }
    }
    flat
}

fn scalar(value: toml::Value) -> String {
    match value {
        toml::Value::String(text) => text,
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "auth.hs256_secret";
    const DIRECT: (&str, &str) = ("POSTHASTE__AUTH__HS256_SECRET", "direct");
    const BY_FILE: &str = "POSTHASTE__AUTH__HS256_SECRET_FILE";

    fn load_both(file: &str, (name, value): (&str, &str)) -> Settings {
        let path = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(path.path(), file).expect("written");
        load(Some(path.path()), &Environment([(name.to_owned(), value.to_owned())].into()))
    }

    #[test]
    fn key_that_is_repeated_in_another_case_is_named() {
        let in_lower_case = ("POSTHASTE__auth__hs256_secret", "other");
        let both = Environment([DIRECT, in_lower_case].map(|(name, text)| (name.into(), text.into())).into());
        let file = "[auth]\nhs256_secret = \"one\"\nHS256_secret = \"other\"";
        for settings in [load(None, &both), load_both(file, ("POSTHASTE__STORE__KIND", "embedded"))] {
            let [error] = &settings.errors[..] else { panic!("one error: {:?}", settings.errors) };
            let twice = format!("{SECRET}: set twice (the names differ only in letter case); keep one (from ");
            assert!(error.starts_with(&twice) && !error.contains("other"), "{error}");
        }
    }

    #[test]
    fn a_secret_is_set_in_one_form_in_all_layers_together() {
        let secret = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(secret.path(), "of-a-file").expect("written");
        let path = secret.path().to_str().expect("text");
        let by_file = format!("auth.hs256_secret_file = \"{path}\"");
        let topic = ("POSTHASTE__TOPICS__T__CONSUMER_URL_FILE", path);
        let refused = [
            ("auth.hs256_secret = \"other\"", (BY_FILE, path), SECRET),
            (by_file.as_str(), DIRECT, SECRET),
            ("topics.t.consumer_url = \"other\"", topic, "topics.t.consumer_url"),
        ];

        for (file, variable, key) in refused {
            let [error] = &load_both(file, variable).errors[..] else { panic!("one error: {file}") };
            assert!(error.starts_with(&format!("{key}: set both directly and by {key}_file")), "{error}");
            assert!(error.ends_with(&format!(" and {})", variable.0)) && !error.contains("other"), "{error}");
        }
        let accepted = [
            (by_file.as_str(), (BY_FILE, path)),
            ("auth.hs256_secret = \"other\"", DIRECT),
            // An empty text does not count as set.
            ("auth.hs256_secret = \"\"", (BY_FILE, path)),
            (by_file.as_str(), (DIRECT.0, "")),
        ];
        for (file, variable) in accepted {
            let settings = load_both(file, variable);
            assert!(settings.errors.is_empty(), "{file}: {:?}", settings.errors);
            assert_eq!(settings.by_key[SECRET].origin.to_string(), variable.0, "the variable that is set");
        }
    }
}
