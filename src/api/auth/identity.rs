//! The verified caller of a request.
use std::sync::Arc;

use domain::Subject;

/// A caller whose token's signature and claims were verified.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Identity {
    pub(crate) subject: Subject,
    pub(crate) user: bool,
    pub(crate) admin: bool,
    /// Whether the caller may read topics and commit offsets.
    pub(crate) consumer: bool,
    /// Whether the caller may publish events.
    pub(crate) publisher: bool,
    pub(crate) tier: Arc<str>,
    /// The claim `exp`: seconds since the epoch.
    pub(crate) expires: f64,
    /// The claim `nbf`: seconds since the epoch.
    pub(crate) not_before: Option<f64>,
}
