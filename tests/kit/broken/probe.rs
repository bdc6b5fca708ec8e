//! A probe with a flaw.
use std::sync::Arc;

use async_trait::async_trait;
use ports::Error;
use ports::probe::{Probe, ProbeReport};

use crate::broken::flaw::Flaw;

pub(crate) struct BrokenProbe {
    pub(crate) inner: Arc<dyn Probe>,
    pub(crate) flaw: Flaw,
}

#[async_trait]
impl Probe for BrokenProbe {
    fn name(&self) -> &'static str {
        if self.flaw == Flaw::HasUnknownName { "database" } else { self.inner.name() }
    }
    async fn check(&self) -> Result<ProbeReport, Error> {
        if self.flaw == Flaw::ReportsAlwaysHealthy { Ok(ProbeReport::default()) } else { self.inner.check().await }
    }
    fn saturation(&self) -> Option<f64> {
        let inner = self.inner.saturation();
        if self.flaw == Flaw::ReportsFullWhileIdle { inner.map(|_| 1.0) } else { inner }
    }
}
