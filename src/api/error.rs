//! The only place where an error becomes a status: RFC 9457 problems that carry the seeds' envelope as members as well.
use std::borrow::Cow;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{ALLOW, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use app::error::{CommandError, QueryError};
use serde::Serialize;
use utoipa::ToSchema;

/// Most field errors of one answer.
pub(crate) const FIELD_ERRORS_MAX: usize = 100;

/// What went wrong, as clients program against it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    BadRequest,
    Unauthorized,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    NotAcceptable,
    RequestTimeout,
    Conflict,
    PreconditionFailed,
    PayloadTooLarge,
    UriTooLong,
    UnsupportedMediaType,
    Unprocessable,
    RateLimited,
    HeadersTooLarge,
    Unexpected,
    Infrastructure,
}

impl Kind {
    fn facts(self) -> (u16, &'static str, &'static str) {
        match self {
            Kind::BadRequest => (400, "BAD_REQUEST", "Bad Request"),
            Kind::Unauthorized => (401, "UNAUTHORIZED", "Unauthorized"),
            Kind::Forbidden => (403, "FORBIDDEN", "Forbidden"),
            Kind::NotFound => (404, "NOT_FOUND", "Not Found"),
            Kind::MethodNotAllowed => (405, "METHOD_NOT_ALLOWED", "Method Not Allowed"),
            Kind::NotAcceptable => (406, "NOT_ACCEPTABLE", "Not Acceptable"),
            Kind::RequestTimeout => (408, "REQUEST_TIMEOUT", "Request Timeout"),
            Kind::Conflict => (409, "CONFLICT", "Conflict"),
            Kind::PreconditionFailed => (412, "PRECONDITION_FAILED", "Precondition Failed"),
            Kind::PayloadTooLarge => (413, "PAYLOAD_TOO_LARGE", "Content Too Large"),
            Kind::UriTooLong => (414, "URI_TOO_LONG", "URI Too Long"),
            Kind::UnsupportedMediaType => (415, "UNSUPPORTED_MEDIA_TYPE", "Unsupported Media Type"),
            Kind::Unprocessable => (422, "UNPROCESSABLE", "Unprocessable Content"),
            Kind::RateLimited => (429, "RATE_LIMITED", "Too Many Requests"),
            Kind::HeadersTooLarge => (431, "HEADERS_TOO_LARGE", "Request Header Fields Too Large"),
            Kind::Unexpected => (500, "UNEXPECTED_ERROR", "Internal Server Error"),
            Kind::Infrastructure => (503, "INFRASTRUCTURE_ERROR", "Service Unavailable"),
        }
    }

    /// The status in words.
    pub(crate) fn title(self) -> &'static str {
        self.facts().2
    }

    /// The status it stands for.
    pub(crate) fn status(self) -> StatusCode {
        StatusCode::from_u16(self.facts().0).expect("the table holds legal statuses")
    }
}

/// A part of the request that is not as it must be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct FieldError {
    /// Where, like `items[0].price`.
    #[schema(example = "items[0].price")]
    pub(crate) field: String,
    /// What it must be.
    #[schema(example = "must be zero or more")]
    pub(crate) message: Cow<'static, str>,
}

/// An error on its way out.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) kind: Kind,
    message: Cow<'static, str>,
    errors: Vec<FieldError>,
    headers: Vec<(HeaderName, HeaderValue)>,
    /// For the log only: never leaves the house.
    pub(crate) cause: Option<String>,
}

/// `application/problem+json` with the seeds' envelope.
#[derive(Serialize, ToSchema)]
#[schema(as = Problem)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Envelope<'a> {
    /// Always `about:blank`: the status says the kind.
    #[schema(example = "about:blank")]
    r#type: &'static str,
    /// The status in words.
    #[schema(example = "Bad Request")]
    title: &'static str,
    #[schema(example = 400, minimum = 400, maximum = 599)]
    status: u16,
    /// What happened this time.
    #[schema(example = "the body is not a valid order")]
    detail: &'a str,
    /// The path that was asked.
    #[schema(example = "/orders")]
    instance: &'a str,
    /// What to program against.
    #[schema(example = "BAD_REQUEST")]
    code: &'static str,
    /// The same as `detail`.
    #[schema(example = "the body is not a valid order")]
    message: &'a str,
    /// As in the header `X-Request-Id`.
    #[schema(example = "5f1c7be0a3f94d0a8a43f0dd3f1a1f5e")]
    request_id: &'a str,
    #[schema(value_type = String, format = DateTime, example = "2026-01-31T12:00:00.000Z")]
    timestamp: String,
    /// Only when parts of the request are to blame.
    #[serde(skip_serializing_if = "<[FieldError]>::is_empty")]
    #[schema(required = false)]
    errors: &'a [FieldError],
}

impl Problem {
    pub(crate) fn new(kind: Kind, message: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, message: message.into(), errors: Vec::new(), headers: Vec::new(), cause: None }
    }

    pub(crate) fn bad_request(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::BadRequest, message)
    }

    pub(crate) fn not_found(message: &'static str) -> Self {
        Self::new(Kind::NotFound, message)
    }

    /// Parts of the request are not as they must be; at most [`FIELD_ERRORS_MAX`] are told.
    pub(crate) fn fields(message: &'static str, mut errors: Vec<FieldError>) -> Self {
        errors.truncate(FIELD_ERRORS_MAX);
        Self { errors, ..Self::bad_request(message) }
    }

    /// One part is not as it must be.
    pub(crate) fn field(field: &str, message: impl Into<Cow<'static, str>>) -> Self {
        let error = FieldError { field: field.to_owned(), message: message.into() };
        Self::fields("a parameter is not valid", vec![error])
    }

    pub(crate) fn method_not_allowed(allow: &str) -> Self {
        Self::new(Kind::MethodNotAllowed, "this method is not allowed here").with_text(ALLOW, allow)
    }

    /// No token, or none that holds. `challenge` goes to `WWW-Authenticate`.
    pub(crate) fn unauthorized(message: &'static str, challenge: &'static str) -> Self {
        Self::new(Kind::Unauthorized, message).with(WWW_AUTHENTICATE, HeaderValue::from_static(challenge))
    }

    pub(crate) fn forbidden() -> Self {
        let challenge = HeaderValue::from_static("Bearer error=\"insufficient_scope\"");
        Self::new(Kind::Forbidden, "the token's roles do not allow this").with(WWW_AUTHENTICATE, challenge)
    }

    /// A form that does not come from a page of this session.
    pub(crate) fn forged() -> Self {
        Self::new(Kind::Forbidden, "this form is not from your session; nothing was changed: load its page again")
    }

    pub(crate) fn rate_limited(retry_after_seconds: u64) -> Self {
        Self::new(Kind::RateLimited, "too many requests").retry_after(retry_after_seconds)
    }

    /// A dependency is away and nothing was changed.
    pub(crate) fn away(cause: impl Into<String>) -> Self {
        Self::held_back("a dependency is not available; nothing was changed", 5).because(cause)
    }

    /// The service cannot take this now; nothing was changed.
    pub(crate) fn held_back(message: impl Into<Cow<'static, str>>, retry_after_seconds: u64) -> Self {
        Self::new(Kind::Infrastructure, message).retry_after(retry_after_seconds)
    }

    /// Something broke, or nobody knows what was changed.
    pub(crate) fn unexpected(cause: impl Into<String>) -> Self {
        let message = "an unexpected error; the request may have changed something: \
                       repeat it with the same idempotency key, or read back";
        Self::new(Kind::Unexpected, message).because(cause)
    }

    /// What happened, for whoever asked.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// The parts of the request that are to blame.
    pub(crate) fn errors(&self) -> &[FieldError] {
        &self.errors
    }

    fn because(mut self, cause: impl Into<String>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    fn retry_after(self, seconds: u64) -> Self {
        self.with(RETRY_AFTER, HeaderValue::from(seconds))
    }

    fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    fn with_text(self, name: HeaderName, value: &str) -> Self {
        match HeaderValue::from_str(value) {
            Ok(value) => self.with(name, value),
            // Only our own texts come here, and they are legal.
            Err(_) => self,
        }
    }

    /// The body of the answer.
    pub(crate) fn envelope(&self, instance: &str, request_id: &str, timestamp: String) -> Vec<u8> {
        let (status, code, title) = self.kind.facts();
        let envelope = Envelope {
            r#type: "about:blank",
            title,
            status,
            detail: &self.message,
            instance,
            code,
            message: &self.message,
            request_id,
            timestamp,
            errors: &self.errors,
        };
        serde_json::to_vec(&envelope).expect("an envelope holds only texts and numbers")
    }

    /// The answer, for a request to `instance`.
    pub(crate) fn answer(&self, instance: &str, request_id: &str, timestamp: String) -> HttpResponse {
        let body = self.envelope(instance, request_id, timestamp);
        let mut answer = HttpResponse::with_body(self.kind.status(), actix_web::body::BoxBody::new(body));
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        for (name, value) in &self.headers {
            headers.insert(name.clone(), value.clone());
        }
        answer
    }
}

impl From<CommandError> for Problem {
    fn from(error: CommandError) -> Self {
        match error {
            CommandError::Gated(closed) => Self::held_back(format!("writes are held back: {closed}"), 5),
            CommandError::KeyRunning => {
                Self::new(Kind::Conflict, "a request with this idempotency key is still running").retry_after(1)
            }
            CommandError::KeyReused => {
                Self::new(Kind::Unprocessable, "this idempotency key was used with another body")
            }
            CommandError::NotFound => Self::no_order(),
            CommandError::PreconditionFailed { current } => {
                Self::new(Kind::PreconditionFailed, format!("the order is at version {current}"))
            }
            CommandError::Conflict(why) | CommandError::RegionConflict(why) => Self::new(Kind::Conflict, why),
            CommandError::Busy => Self::held_back("too many commands are waiting; nothing was changed", 1),
            CommandError::ActorDown => Self::held_back("the order's actor is restarting; nothing was changed", 1),
            CommandError::Expired => {
                Self::held_back("the command waited past its deadline and was dropped; nothing was changed", 1)
            }
            CommandError::Unavailable(cause) | CommandError::NoRoom(cause) => Self::away(cause),
            CommandError::Unknown(cause) => Self::unexpected(cause),
        }
    }
}

impl From<QueryError> for Problem {
    fn from(error: QueryError) -> Self {
        match error {
            QueryError::NotFound => Self::not_found("no such thing"),
            QueryError::Conflict(why) => Self::new(Kind::Conflict, why),
            QueryError::Unavailable(cause) => Self::away(cause),
            QueryError::Unknown(cause) => Self::unexpected(cause),
        }
    }
}

impl Problem {
    /// There is no such order, or not for this caller: one answer for both.
    pub(crate) fn no_order() -> Self {
        Self::not_found("no such order")
    }
}
