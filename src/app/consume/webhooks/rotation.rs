//! The secrets of a webhook after a rotation.
use std::time::Duration;

use domain::Timestamp;
use ports::endpoint::webhooks::WebhookSecret;

/// Most secrets of a webhook that are valid at the same time: a signature of each is in every request.
pub const SECRETS_MAX: usize = 8;

/// Puts a new secret first. Former ones stay valid until the end that was promised for them: a client that repeats a rotation, because it received
/// no response, ends none of them early.
///
/// # Errors
/// When the first of [`SECRETS_MAX`] secrets ends; nothing was changed.
pub fn rotate(
    secrets: &[WebhookSecret],
    text: String,
    now: Timestamp,
    overlap: Duration,
) -> Result<Vec<WebhookSecret>, Timestamp> {
    let end = now.plus(overlap);
    let former = secrets.iter().filter(|secret| secret.text != text).map(|secret| {
        let valid_until = Some(secret.valid_until.unwrap_or(end));
        WebhookSecret { valid_until, ..secret.clone() }
    });
    let former: Vec<WebhookSecret> = former.filter(|secret| secret.valid_until > Some(now)).collect();
    if former.len() >= SECRETS_MAX {
        return Err(former.iter().filter_map(|secret| secret.valid_until).min().unwrap_or(end));
    }
    Ok([WebhookSecret { text, valid_until: None }].into_iter().chain(former).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OVERLAP: Duration = Duration::from_millis(1_000);

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn view(secrets: &[WebhookSecret]) -> Vec<(&str, Option<i64>)> {
        secrets.iter().map(|secret| (secret.text.as_str(), secret.valid_until.map(Timestamp::millis))).collect()
    }

    fn rotated(secrets: &[WebhookSecret], text: &str, millis: i64) -> Vec<WebhookSecret> {
        rotate(secrets, text.to_owned(), at(millis), OVERLAP).expect("few secrets are valid")
    }

    #[test]
    fn former_secrets_stay_valid_until_their_end_when_a_rotation_is_repeated() {
        let first = [WebhookSecret { text: "a".into(), valid_until: None }];
        let second = rotated(&first, "b", 100);
        assert_eq!(view(&second), [("b", None), ("a", Some(1_100))]);

        let third = rotated(&second, "c", 200);
        assert_eq!(view(&third), [("c", None), ("b", Some(1_200)), ("a", Some(1_100))]);
        assert_eq!(view(&rotated(&third, "c", 300)), view(&third), "the same secret again changes nothing");
        assert_eq!(view(&rotated(&third, "a", 300)), [("a", None), ("c", Some(1_300)), ("b", Some(1_200))]);

        assert_eq!(view(&rotated(&third, "d", 1_100)), [("d", None), ("c", Some(2_100)), ("b", Some(1_200))]);
    }

    #[test]
    fn rotation_is_refused_while_too_many_secrets_are_valid() {
        let mut secrets = vec![WebhookSecret { text: "0".into(), valid_until: None }];
        for number in 1..SECRETS_MAX {
            secrets = rotated(&secrets, &number.to_string(), number as i64);
        }
        assert_eq!(secrets.len(), SECRETS_MAX);

        assert_eq!(rotate(&secrets, "one more".into(), at(500), OVERLAP), Err(at(1_001)));

        assert_eq!(rotated(&secrets, "one more", 1_001).len(), SECRETS_MAX);
    }
}
