//! A probe with a flaw.
use std::sync::Arc;

use async_trait::async_trait;
use ports::Error;
use ports::probe::{Probe, ProbeReport};

use crate::broken::flaw::Flaw;

pub(crate) struct BrokenProbe {
    pub(crate) real: Arc<dyn Probe>,
    pub(crate) flaw: Flaw,
}

#[async_trait]
impl Probe for BrokenProbe {
    fn name(&self) -> &'static str {
        if self.flaw == Flaw::HasUnknownName { "database" } else { self.real.name() }
    }
    async fn check(&self) -> Result<ProbeReport, Error> {
        if self.flaw == Flaw::ReportsAlwaysHealthy { Ok(ProbeReport::default()) } else { self.real.check().await }
    }
    fn saturation(&self) -> Option<f64> {
        let real = self.real.saturation();
        if self.flaw == Flaw::ReportsFullWhileIdle { real.map(|_| 1.0) } else { real }
    }
}
