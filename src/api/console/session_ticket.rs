//! The ticket of a session: a signed copy in a cookie of its own, from which a session continues after a restart of the process.
//!
//! While the process runs, its memory decides: a ticket counts only if it was written before the process started, so that a log-out, an
//! eviction or a session that was idle for too long is final.
use std::sync::Arc;

use domain::{Subject, Timestamp};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation, decode, encode};
use rand::RngCore;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::auth::identity::Identity;

/// The key that signs tickets.
pub(crate) struct TicketKey {
    signing: EncodingKey,
    verifying: DecodingKey,
}

/// Content of a ticket: nothing that a reader could use as a log-in.
#[derive(Serialize, Deserialize)]
pub(crate) struct Ticket {
    /// The hash of the session's id, in hexadecimal digits.
    session: String,
    sub: String,
    tier: String,
    user: bool,
    expires: f64,
    not_before: Option<f64>,
    /// When the ticket was written, in milliseconds: the session's last use, or a minute before it.
    written: i64,
}

impl TicketKey {
    /// A key derived from a secret of the installation; without one a random key, and no session continues after a restart. It depends on the
    /// fingerprint of the keys that tokens are verified with: a session of a token that a former key signed does not continue.
    pub(crate) fn new(secret: Option<&SecretString>, token_keys: &[u8; 32]) -> Self {
        let mut key = [0; 32];
        match secret {
            // The prefix keeps the key apart from the secret's other uses: a ticket is never a bearer token.
            Some(secret) => {
                key = Sha256::new()
                    .chain_update("posthaste console ticket\0")
                    .chain_update(token_keys)
                    .chain_update(secret.expose_secret())
                    .finalize()
                    .into();
            }
            None => rand::rng().fill_bytes(&mut key),
        }
        Self { signing: EncodingKey::from_secret(&key), verifying: DecodingKey::from_secret(&key) }
    }

    pub(crate) fn sign(&self, ticket: &Ticket) -> Option<String> {
        encode(&Header::new(Algorithm::HS256), ticket, &self.signing).ok()
    }

    /// The ticket, if this key signed it.
    pub(crate) fn verify(&self, text: &str) -> Option<Ticket> {
        let mut validation = Validation::new(Algorithm::HS256);
        validation.required_spec_claims.clear();
        (validation.validate_exp, validation.validate_aud) = (false, false);
        decode::<Ticket>(text, &self.verifying, &validation).ok().map(|decoded| decoded.claims)
    }
}

impl Ticket {
    pub(crate) fn new(id_hash: &[u8; 32], identity: &Identity, now: Timestamp) -> Self {
        Self {
            session: hexadecimal(id_hash),
            sub: identity.subject.as_str().to_owned(),
            tier: identity.tier.to_string(),
            user: identity.user,
            expires: identity.expires,
            not_before: identity.not_before,
            written: now.millis(),
        }
    }

    pub(crate) fn written(&self) -> Timestamp {
        Timestamp::from_millis(self.written)
    }

    /// Whether it belongs to the session whose id has this hash.
    pub(crate) fn belongs_to(&self, id_hash: &[u8; 32]) -> bool {
        self.session == hexadecimal(id_hash)
    }

    /// The administrator that logged in.
    pub(crate) fn into_identity(self) -> Option<Arc<Identity>> {
        let Self { sub, tier, user, expires, not_before, .. } = self;
        let subject = Subject::new(&sub)?;
        let (admin, consumer, publisher, tier) = (true, false, false, tier.into());
        Some(Arc::new(Identity { subject, user, admin, consumer, publisher, tier, expires, not_before }))
    }
}

pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_accepted_only_with_the_key_that_signed_it() {
        let key = |secret: &str| TicketKey::new(Some(&SecretString::from(secret)), &[1; 32]);
        let identity = Identity {
            subject: Subject::new("ann").expect("a legal subject"),
            user: false,
            admin: true,
            consumer: false,
            publisher: false,
            tier: "gold".into(),
            expires: 9.5,
            not_before: None,
        };
        let text = key("one").sign(&Ticket::new(&[7; 32], &identity, Timestamp::from_millis(5))).expect("signed");

        let ticket = key("one").verify(&text).expect("the same secret");
        assert!(
            ticket.belongs_to(&[7; 32])
                && !ticket.belongs_to(&[8; 32])
                && ticket.written() == Timestamp::from_millis(5)
        );
        assert_eq!(ticket.into_identity().as_deref(), Some(&identity));
        assert!(key("two").verify(&text).is_none() && TicketKey::new(None, &[1; 32]).verify(&text).is_none());
        assert!(TicketKey::new(Some(&"one".into()), &[2; 32]).verify(&text).is_none(), "another key of tokens");
        assert!(key("one").verify(&format!("{text}x")).is_none() && key("one").verify("").is_none());
    }
}
