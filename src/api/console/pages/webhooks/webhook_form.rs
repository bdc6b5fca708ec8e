//! The form of a webhook: the entered texts, its fields, and the parsed values.
use app::consume::webhooks::{WebhookStart, WebhookValues};
use app::port_types::Webhook;
use maud::{Markup, html};

use crate::admin::filters::parameter;
use crate::error::Problem;
use crate::request::query::Query;
use crate::topics::webhooks::limits::{DESCRIPTION_MAX, URL_MAX, legal_names, legal_text};

const VERSION_MESSAGE: &str = "must be the version that the form contained: open it again";

/// The entered texts, valid or not, so that a refused form shows them again.
pub(super) struct WebhookForm {
    /// Version of the webhook that the form shows; none of a new webhook.
    version: Option<u64>,
    url: String,
    /// Names, separated by commas or white space.
    topics: String,
    types: String,
    description: String,
    ordered: bool,
    active: bool,
    from_beginning: bool,
}

impl WebhookForm {
    /// The form of a new webhook, for the events of this topic.
    pub(super) fn blank(topic: &str) -> Self {
        let (url, topics) = (String::new(), topic.to_owned());
        let (types, description) = (String::new(), String::new());
        Self { version: None, url, topics, types, description, ordered: true, active: true, from_beginning: false }
    }

    /// The form with the present values of a webhook.
    pub(super) fn from_webhook(webhook: &Webhook) -> Self {
        Self {
            version: Some(webhook.version),
            url: webhook.url.clone(),
            topics: webhook.topics.join("\n"),
            types: webhook.types.join("\n"),
            description: webhook.description.clone(),
            ordered: webhook.ordered,
            active: webhook.active,
            from_beginning: false,
        }
    }

    /// Shows the topics of a webhook, which a form of changes does not send.
    pub(super) fn keep_topics_of(&mut self, webhook: &Webhook) {
        self.topics = webhook.topics.join("\n");
    }

    /// Reads the fields that a browser sent. It sends no checkbox that is not checked.
    pub(super) fn read(form: &Query<'_>) -> Result<Self, Problem> {
        let text = |name| form.get(name).map(|text| text.unwrap_or_default().to_owned());
        let checked = |name| form.non_empty(name).map(|value| value.is_some());
        Ok(Self {
            version: parameter(form, "version", |text| text.parse().ok(), VERSION_MESSAGE)?,
            url: text("url")?,
            topics: text("topics")?,
            types: text("types")?,
            description: text("description")?,
            ordered: checked("ordered")?,
            active: checked("active")?,
            from_beginning: checked("beginning")?,
        })
    }

    /// The parsed values of the form.
    pub(super) fn values(&self) -> Result<WebhookValues, Problem> {
        Ok(WebhookValues {
            version: self.version,
            url: Some(legal_text("url", self.url.trim(), URL_MAX)?),
            types: Some(legal_names("types", names(&self.types))?),
            ordered: Some(self.ordered),
            active: Some(self.active),
            description: Some(legal_text("description", self.description.trim(), DESCRIPTION_MAX)?),
        })
    }

    /// The values of a change, which names the version that the operator saw: other changes since must not be undone.
    pub(super) fn changed_values(&self) -> Result<WebhookValues, Problem> {
        self.version.ok_or_else(|| Problem::field("version", VERSION_MESSAGE)).and_then(|_| self.values())
    }

    /// The topics of a new webhook.
    pub(super) fn topics(&self) -> Result<Vec<String>, Problem> {
        legal_names("topics", names(&self.topics))
    }

    pub(super) fn start(&self) -> WebhookStart {
        if self.from_beginning { WebhookStart::Beginning } else { WebhookStart::End }
    }

    /// The fields; topics and the first event belong to new webhooks only.
    pub(super) fn fields(&self, is_new: bool) -> Markup {
        let checkbox = |name: &str, label: &str, is_checked: bool| {
            html! { label { input type="checkbox" name=(name) value="true" checked[is_checked]; " " (label) } }
        };
        html! {
            @if let Some(version) = self.version { input type="hidden" name="version" value=(version); }
            label { "Endpoint (URL) " input type="url" name="url" value=(self.url) required maxlength=(URL_MAX) autocomplete="off"; }
            @if is_new {
                label { "Topics, one a line " textarea name="topics" required rows="3" { (self.topics) } }
            } @else {
                p class="quiet" { "The topics stay: " (self.topics.replace('\n', ", ")) ". For others, create another webhook." }
            }
            label { "Types, one a line; all if empty " textarea name="types" rows="3" { (self.types) } }
            label { "Description " input type="text" name="description" value=(self.description) maxlength=(DESCRIPTION_MAX) autocomplete="off"; }
            (checkbox("ordered", "Events of a key wait for each other", self.ordered))
            (checkbox("active", "Active: events are delivered", self.active))
            @if is_new { (checkbox("beginning", "Deliver all events that the topics keep, not only those from now on", self.from_beginning)) }
        }
    }
}

fn names(text: &str) -> Vec<String> {
    let separated = |character: char| character == ',' || character.is_whitespace();
    text.split(separated).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn form_means_what_was_typed_and_unchecked_boxes_are_false() {
        let query = Query::parse("url=https%3A%2F%2Fx%2Fy+&topics=a%0D%0Ab%2C+c&types=&active=true&description=+crm");
        let form = WebhookForm::read(&query).expect("it is UTF-8");
        let values = form.values().expect("legal");

        assert_eq!((values.url.as_deref(), values.description.as_deref()), (Some("https://x/y"), Some("crm")));
        assert_eq!((values.types, values.ordered, values.active), (Some(Vec::new()), Some(false), Some(true)));
        assert_eq!(
            (form.topics().expect("legal"), form.start()),
            (["a", "b", "c"].map(str::to_owned).to_vec(), WebhookStart::End)
        );
        let twice = WebhookForm::read(&Query::parse("url=x&topics=a+a")).expect("it is UTF-8");
        assert!(twice.topics().is_err() && twice.fields(true).into_string().contains(">a a</textarea>"));
    }
}
