//! Three layers of settings, flattened to dotted keys and laid over each other. Unknown keys are found here, with what was probably meant.
use std::collections::BTreeMap;
use std::path::Path;

/// The defaults, compiled in: also the list of all keys there are.
pub(super) const DEFAULTS: &str = include_str!("../../config/default.toml");
/// What environment variables of ours begin with.
const PREFIX: &str = "POSTHASTE__";
/// Keys that may stand in a file of their own, and are masked when printed.
pub(super) const SECRETS: [&str; 4] = ["auth.hs256_secret", "store.url", "redis.url", "broker.sasl.password"];
/// Sections whose last part names an event type, which is written in capitals.
const BY_EVENT_TYPE: [&str; 2] = ["outbox.poison.", "outbox.fallback."];

/// Variables as the process was given them.
#[derive(Clone, Debug, Default)]
pub struct Environment(pub BTreeMap<String, String>);

impl Environment {
    /// The process's own, as far as it is ours.
    pub fn of_process() -> Self {
        let ours = std::env::vars_os().filter_map(|(name, value)| {
            let name = name.into_string().ok()?;
            name.starts_with(PREFIX).then(|| (name, value.to_string_lossy().into_owned()))
        });
        Self(ours.collect())
    }
}

/// Where a setting came from: told with its mistakes, and by `doctor`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Default,
    File(String),
    Variable(String),
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File(path) => f.write_str(path),
            Origin::Variable(name) => f.write_str(name),
        }
    }
}

/// A setting as text.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    pub text: String,
    pub origin: Origin,
}

/// All settings, by key.
#[derive(Clone, Debug, Default)]
pub(super) struct Settings {
    pub by_key: BTreeMap<String, Setting>,
    pub mistakes: Vec<String>,
}

pub(super) fn load(file: Option<&Path>, environment: &Environment) -> Settings {
    let mut settings = Settings::default();
    let defaults: toml::Table = DEFAULTS.parse().expect("config/default.toml is tested");
    flatten("", &toml::Value::Table(defaults), &mut |key, text| {
        settings.by_key.insert(key, Setting { text, origin: Origin::Default });
    });
    let known: Vec<String> = settings.by_key.keys().cloned().collect();
    if let Some(path) = file {
        let shown = path.display().to_string();
        let mut found = Vec::new();
        // A file that cannot be read at all is one mistake, and no reason to keep quiet about those of the environment.
        match read_table(path) {
            Ok(table) => flatten("", &toml::Value::Table(table), &mut |key, text| found.push((key, text))),
            Err(error) => settings.mistakes.push(format!("{shown}: {error}")),
        }
        settings.lay(&known, found, |_| Origin::File(shown.clone()));
    }
    let variables = environment.0.iter().filter_map(|(name, text)| {
        let key = name.strip_prefix(PREFIX)?.replace("__", ".").to_lowercase();
        Some((key, text.clone()))
    });
    settings.lay(&known, variables.collect(), |key| Origin::Variable(variable(key)));
    settings
}

fn read_table(path: &Path) -> Result<toml::Table, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    text.parse().map_err(|error: toml::de::Error| placed(&text, &error))
}

/// Without the line itself, which the library would show: it may hold a secret.
fn placed(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    format!("line {line}, column {column}: {}", error.message().trim())
}

impl Settings {
    /// Lays a layer over what is there. In one layer a secret stands either by itself or in a file.
    fn lay(&mut self, known: &[String], layer: Vec<(String, String)>, origin: impl Fn(&str) -> Origin) {
        let mut seen: BTreeMap<String, String> = BTreeMap::new();
        for (key, text) in layer {
            let Some((key, text)) = self.resolve(known, &key, text, &origin) else { continue };
            if seen.insert(key.clone(), text.clone()).is_some() {
                self.mistakes.push(format!("{key}: set both directly and by {key}_file; keep one"));
            }
            let setting = Setting { text, origin: origin(&key) };
            self.by_key.insert(key, setting);
        }
    }

    fn resolve(
        &mut self,
        known: &[String],
        key: &str,
        text: String,
        origin: &impl Fn(&str) -> Origin,
    ) -> Option<(String, String)> {
        if let Some(exact) = known.iter().find(|known| known.eq_ignore_ascii_case(key)) {
            return Some((exact.clone(), text));
        }
        if let Some(prefix) = BY_EVENT_TYPE.iter().find(|prefix| key.to_lowercase().starts_with(**prefix)) {
            return Some((format!("{prefix}{}", key[prefix.len()..].to_uppercase()), text));
        }
        if let Some(secret) = key.strip_suffix("_file").filter(|secret| SECRETS.contains(secret)) {
            return match std::fs::read_to_string(&text) {
                Ok(read) => Some((
                    secret.to_owned(),
                    read.strip_suffix('\n').unwrap_or(&read).trim_end_matches('\r').to_owned(),
                )),
                Err(error) => {
                    self.mistakes.push(format!("{key} = {text}: the file cannot be read: {error}"));
                    None
                }
            };
        }
        let meant = nearest(key, known).map(|meant| format!("; did you mean {meant}?")).unwrap_or_default();
        self.mistakes.push(format!("{key}: unknown key (from {}){meant}", origin(key)));
        None
    }
}

/// The environment variable of a key.
pub(super) fn variable(key: &str) -> String {
    format!("{PREFIX}{}", key.replace('.', "__").to_uppercase())
}

fn flatten(prefix: &str, value: &toml::Value, put: &mut impl FnMut(String, String)) {
    let text = match value {
        toml::Value::Table(table) => {
            for (name, value) in table {
                let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
                flatten(&key, value, put);
            }
            return;
        }
        toml::Value::String(text) => text.clone(),
        toml::Value::Array(list) => {
            let parts = list.iter().map(|part| part.as_str().map_or_else(|| part.to_string(), str::to_owned));
            parts.collect::<Vec<_>>().join(",")
        }
        other => other.to_string(),
    };
    put(prefix.to_owned(), text);
}

/// The known key that differs least, if it differs little enough to have been meant.
fn nearest<'a>(key: &str, known: &'a [String]) -> Option<&'a str> {
    let ranked = known.iter().map(|known| (distance(key, known), known));
    let (distance, known) = ranked.min()?;
    (distance <= key.len().max(6) / 3).then_some(known)
}

/// Levenshtein's distance between two keys.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, left) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, right) in b.bytes().enumerate() {
            let substituted = diagonal + usize::from(left != right);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
