//! The table of routes as data: what stands where, who may ask it, what it takes and gives.
use std::sync::Arc;

use actix_web::HttpResponse;
use actix_web::http::Method;
use futures::future::LocalBoxFuture;

use crate::call::Call;
use crate::error::Problem;
use crate::options::Surface;
use crate::{actuator, admin, console, docs, health, orders};

/// How a handler ends.
pub(crate) type Answer = Result<HttpResponse, Problem>;
/// A handler.
pub(crate) type Handler = fn(Call) -> LocalBoxFuture<'static, Answer>;

/// Who may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Anybody; a token is not looked at.
    Open,
    /// Anybody; a token that holds shows more.
    Either,
    /// USER or ADMIN.
    Member,
    /// ADMIN.
    Admin,
    /// ADMIN, by a session of the console or by a token; whoever has neither is led to the login.
    Console,
}

/// What is done with a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takes {
    /// It is not read.
    Nothing,
    /// It must be JSON.
    Json,
    /// It must be JSON when it is there.
    OptionalJson,
    /// It must be a form; in a session it must carry the session's mark.
    Form,
}

/// What comes back when all goes well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gives {
    /// JSON: an `Accept` that excludes it is refused.
    Json,
    /// Something else, whatever `Accept` says.
    Other,
}

/// How a resource's answers are dressed, refusals too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// As they are.
    Plain,
    /// About orders: private, and different for each caller.
    Private,
    /// A page of the console: its policy, kept by nobody; refusals are pages, too.
    Console,
}

/// One method of a resource.
pub(crate) struct Endpoint {
    pub(crate) method: Method,
    pub(crate) access: Access,
    pub(crate) takes: Takes,
    pub(crate) gives: Gives,
    /// Whether the rate limit counts it.
    pub(crate) limited: bool,
    pub(crate) handle: Handler,
}

/// A path with its methods.
pub(crate) struct Resource {
    /// As metrics, logs and rate limits name it.
    pub(crate) template: &'static str,
    /// As actix matches it, where that differs.
    pub(crate) pattern: Option<&'static str>,
    pub(crate) manner: Manner,
    pub(crate) endpoints: Vec<Endpoint>,
}

impl Resource {
    pub(crate) fn at(template: &'static str) -> Self {
        Self { template, pattern: None, manner: Manner::Plain, endpoints: Vec::new() }
    }

    pub(crate) fn matched_by(self, pattern: &'static str) -> Self {
        Self { pattern: Some(pattern), ..self }
    }

    pub(crate) fn private(self) -> Self {
        Self { manner: Manner::Private, ..self }
    }

    pub(crate) fn console(self) -> Self {
        Self { manner: Manner::Console, ..self }
    }

    pub(crate) fn on(mut self, endpoint: Endpoint) -> Self {
        self.endpoints.push(endpoint);
        self
    }

    /// The endpoint that answers a method; HEAD is answered as GET.
    pub(crate) fn endpoint(&self, method: &Method) -> Option<&Endpoint> {
        let asked = if method == Method::HEAD { &Method::GET } else { method };
        self.endpoints.iter().find(|endpoint| endpoint.method == asked)
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
        Self { method, access: Access::Open, takes: Takes::Nothing, gives: Gives::Json, limited: false, handle }
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

    /// USER or ADMIN, counted by the rate limit.
    pub(crate) fn member(self) -> Self {
        Self { access: Access::Member, limited: true, ..self }
    }

    /// ADMIN, counted by the rate limit.
    pub(crate) fn admin(self) -> Self {
        Self { access: Access::Admin, limited: true, ..self }
    }

    /// An operator in a browser, counted by the rate limit.
    pub(crate) fn console(self) -> Self {
        Self { access: Access::Console, gives: Gives::Other, limited: true, ..self }
    }

    /// ADMIN, but a probe: free of the rate limit.
    pub(crate) fn admin_probe(self) -> Self {
        Self { access: Access::Admin, ..self }
    }

    /// Counted by the rate limit; whoever asks without a token is counted by address.
    pub(crate) fn counted(self) -> Self {
        Self { limited: true, ..self }
    }

    pub(crate) fn either(self) -> Self {
        Self { access: Access::Either, ..self }
    }

    pub(crate) fn takes(self, takes: Takes) -> Self {
        Self { takes, ..self }
    }

    pub(crate) fn other(self) -> Self {
        Self { gives: Gives::Other, ..self }
    }

    /// Whether it may change something.
    pub(crate) fn changes(&self) -> bool {
        self.method != Method::GET
    }
}

/// A handler as the table wants it: `handler!(orders::find)`.
macro_rules! handler {
    ($function:path) => {
        |call| Box::pin($function(call))
    };
}
pub(crate) use handler;

/// Every resource of a surface; the first that matches answers.
pub(crate) fn table(which: Surface) -> Vec<Arc<Resource>> {
    let mut resources = Vec::new();
    if which != Surface::Admin {
        resources.extend(orders::resources());
    }
    if which != Surface::Public {
        resources.extend(admin::resources());
        resources.extend(console::resources());
    }
    resources.extend(health::resources());
    resources.extend(actuator::resources());
    resources.extend(docs::resources());
    resources.into_iter().map(Arc::new).collect()
}
