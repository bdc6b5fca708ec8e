//! Routes as data: path, access, request body, response format and handler.
use actix_web::http::Method;
use futures::future::LocalBoxFuture;

use crate::request::context::RequestContext;
use crate::request::response::RouteResult;

pub(crate) type Handler = fn(RequestContext) -> LocalBoxFuture<'static, RouteResult>;

/// Authorization of a route: the callers that it admits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// All callers; a token is ignored.
    Open,
    /// All callers; a valid token adds information to the response.
    OptionalToken,
    /// Callers with the role USER or ADMIN.
    UserOrAdmin,
    /// Callers with the role CONSUMER or ADMIN.
    ConsumerOrAdmin,
    /// Callers with the role PUBLISHER or ADMIN.
    PublisherOrAdmin,
    /// Callers with the role ADMIN.
    Admin,
    /// Callers with the role ADMIN, by console session or token; a request without either is redirected to the login.
    Console,
}

/// The request body that a route expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyKind {
    /// The body is not read.
    Nothing,
    /// The body must be JSON.
    Json,
    /// The body may be absent, else it must be JSON.
    OptionalJson,
    /// The body is read whatever its type is; the handler checks it.
    Any,
    /// The body must be a form; in a console session it must contain the CSRF token.
    Form,
}

/// The content type of a successful response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseFormat {
    /// JSON; a request whose `Accept` excludes it gets 406.
    Json,
    /// Another type; `Accept` is ignored.
    Other,
}

/// Headers that all responses of a resource carry, errors included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderPolicy {
    /// Only the headers of every response.
    Plain,
    /// Responses about orders: private to the caller.
    Private,
    /// Console responses: content security policy, not cached; errors are HTML pages.
    Console,
}

/// One method of a resource with its handler.
pub(crate) struct Endpoint {
    pub(crate) method: Method,
    pub(crate) access: Access,
    pub(crate) body_kind: BodyKind,
    pub(crate) format: ResponseFormat,
    pub(crate) rate_limited: bool,
    pub(crate) handle: Handler,
}

/// A path with its endpoints.
pub(crate) struct Resource {
    /// The name in metrics, logs and rate limits.
    pub(crate) template: &'static str,
    /// The pattern that actix matches, where it differs from the template.
    pub(crate) pattern: Option<&'static str>,
    pub(crate) header_policy: HeaderPolicy,
    pub(crate) endpoints: Vec<Endpoint>,
}

impl Resource {
    pub(crate) fn at(template: &'static str) -> Self {
        Self { template, pattern: None, header_policy: HeaderPolicy::Plain, endpoints: Vec::new() }
    }

    pub(crate) fn matched_by(self, pattern: &'static str) -> Self {
        Self { pattern: Some(pattern), ..self }
    }

    pub(crate) fn private(self) -> Self {
        Self { header_policy: HeaderPolicy::Private, ..self }
    }

    pub(crate) fn console(self) -> Self {
        Self { header_policy: HeaderPolicy::Console, ..self }
    }

    pub(crate) fn on(mut self, endpoint: Endpoint) -> Self {
        self.endpoints.push(endpoint);
        self
    }

    /// The endpoint of a method; HEAD is handled as GET.
    pub(crate) fn endpoint(&self, method: &Method) -> Option<&Endpoint> {
        let method = if method == Method::HEAD { &Method::GET } else { method };
        self.endpoints.iter().find(|endpoint| endpoint.method == method)
    }

    /// The value of `Allow`.
    pub(crate) fn allow(&self) -> String {
        let mut names = Vec::new();
        for endpoint in &self.endpoints {
            names.push(endpoint.method.as_str());
            if endpoint.method == Method::GET {
                names.push("HEAD");
            }
        }
        names.push("OPTIONS");
        names.join(", ")
    }
}

impl Endpoint {
    fn new(method: Method, handle: Handler) -> Self {
        Self {
            method,
            access: Access::Open,
            body_kind: BodyKind::Nothing,
            format: ResponseFormat::Json,
            rate_limited: false,
            handle,
        }
    }

    pub(crate) fn get(handle: Handler) -> Self {
        Self::new(Method::GET, handle)
    }

    pub(crate) fn post(handle: Handler) -> Self {
        Self::new(Method::POST, handle)
    }

    pub(crate) fn patch(handle: Handler) -> Self {
        Self::new(Method::PATCH, handle)
    }

    pub(crate) fn delete(handle: Handler) -> Self {
        Self::new(Method::DELETE, handle)
    }

    /// Requires USER or ADMIN, and counts against the rate limit.
    pub(crate) fn user_or_admin(self) -> Self {
        Self { access: Access::UserOrAdmin, rate_limited: true, ..self }
    }

    /// Requires CONSUMER or ADMIN. The rate limit of orders does not apply: `read.readers_max` bounds the readers.
    pub(crate) fn consumer_or_admin(self) -> Self {
        Self { access: Access::ConsumerOrAdmin, ..self }
    }

    /// Requires PUBLISHER or ADMIN, and counts against the rate limit.
    pub(crate) fn publisher_or_admin(self) -> Self {
        Self { access: Access::PublisherOrAdmin, rate_limited: true, ..self }
    }

    /// Requires ADMIN, and counts against the rate limit.
    pub(crate) fn admin(self) -> Self {
        Self { access: Access::Admin, rate_limited: true, ..self }
    }

    /// Requires a console session or an ADMIN token, and counts against the rate limit.
    pub(crate) fn console(self) -> Self {
        Self { access: Access::Console, format: ResponseFormat::Other, rate_limited: true, ..self }
    }

    /// Requires ADMIN. A probe, so the rate limit does not apply.
    pub(crate) fn admin_probe(self) -> Self {
        Self { access: Access::Admin, ..self }
    }

    /// Counts against the rate limit; requests without a token are counted by address.
    pub(crate) fn rate_limited(self) -> Self {
        Self { rate_limited: true, ..self }
    }

    pub(crate) fn optional_token(self) -> Self {
        Self { access: Access::OptionalToken, ..self }
    }

    pub(crate) fn body_kind(self, body_kind: BodyKind) -> Self {
        Self { body_kind, ..self }
    }

    /// The response is not JSON, so `Accept` is ignored.
    pub(crate) fn not_json(self) -> Self {
        Self { format: ResponseFormat::Other, ..self }
    }

    /// Whether the endpoint may change state: every method but GET and HEAD.
    pub(crate) fn is_mutation(&self) -> bool {
        self.method != Method::GET
    }
}

/// A function as a [`Handler`]: `handler!(orders::find)`.
macro_rules! handler {
    ($function:path) => {
        |context| Box::pin($function(context))
    };
}
pub(crate) use handler;
