//! The configuration as output: every key with its value, secrets masked, and a JSON Schema of the file.
use std::path::Path;

use api::auth::masked_url;
use serde_json::{Map, Value, json};

use super::layers::{self, ConfigErrors, Environment, is_secret};
use super::{load, topic_keys};

/// Shown instead of a secret that is set.
const MASK: &str = "***";

/// A setting as it may be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaskedSetting {
    /// The dotted key, such as `store.url`.
    pub key: String,
    /// The value as text; `***` for a secret that is set.
    pub value: String,
    /// The layer that set the value: `default`, the file, or the environment variable.
    pub origin: String,
}

/// Every setting with the layer that set it, secrets masked, in the order of the keys.
///
/// # Errors
/// The same errors as [`super::Config::load`].
pub fn masked_settings(file: Option<&Path>, environment: &Environment) -> Result<Vec<MaskedSetting>, ConfigErrors> {
    let settings = layers::load(file, environment);
    load::parse(settings.clone()).into_valid()?;
    let set = settings.by_key.into_iter().filter(|(key, _)| !topic_keys::is_template(key));
    let masked = set.map(|(key, setting)| {
        let secret = is_secret(&key) && !setting.text.is_empty();
        let value = match &*key {
            _ if secret => MASK.to_owned(),
            "auth.jwks_url" => masked_url(&setting.text),
            _ => setting.text,
        };
        MaskedSetting { key, value, origin: setting.origin.to_string() }
    });
    Ok(masked.collect())
}

/// A JSON Schema (2020-12) of the file that `--config` takes, with the default and the comment of every key.
pub fn schema() -> Value {
    let mut root = section();
    let mut comments: Vec<String> = Vec::new();
    let mut path: Vec<String> = Vec::new();
    for line in layers::DEFAULTS.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            comments.push(comment.to_owned());
        } else if let Some(header) = line.strip_prefix('[') {
            path = header.trim_end_matches(']').split('.').map(str::to_owned).collect();
            comments.clear();
        } else if let Some((name, default)) = line.split_once(" = ") {
            let (section, description) = (properties(&mut root, &path), comments.join(" "));
            section.insert(name.to_owned(), property(default, &description));
            if is_secret(&format!("{}.{name}", path.join("."))) {
                section.insert(format!("{name}_file"), property("\"\"", "The file that contains the secret."));
            }
            comments.clear();
        } else {
            comments.clear();
        }
    }
    let topics = root["properties"]["topics"]["properties"]["NAME"].take();
    root["properties"]["topics"] = json!({"type": "object", "additionalProperties": topics});
    root["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    root["title"] = json!("posthaste configuration");
    root
}

fn section() -> Value {
    json!({"type": "object", "additionalProperties": false, "properties": {}})
}

/// The properties of the section at this path, created where it is missing.
fn properties<'a>(root: &'a mut Value, path: &[String]) -> &'a mut Map<String, Value> {
    let mut current = root;
    for name in path {
        let properties = current["properties"].as_object_mut().expect("created by section()");
        current = properties.entry(name).or_insert_with(section);
    }
    current["properties"].as_object_mut().expect("created by section()")
}

fn property(default: &str, description: &str) -> Value {
    let default: Value = serde_json::from_str(default).unwrap_or_else(|_| json!(default));
    let kind = match default {
        Value::Bool(_) => json!("boolean"),
        Value::Number(_) => json!(["number", "string"]),
        // A duration may be a bare 0, a size a bare number of bytes.
        _ => json!(["string", "number", "array"]),
    };
    json!({"type": kind, "default": default, "description": description})
}
