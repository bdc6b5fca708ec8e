//! The reference's probe: healthy until the case cuts the backend off.
use std::time::Duration;

use async_trait::async_trait;
use ports::Error;
use ports::probe::{Probe, ProbeReport};

use crate::reference::state::Reference;

#[async_trait]
impl Probe for Reference {
    fn name(&self) -> &'static str {
        "db"
    }

    async fn check(&self) -> Result<ProbeReport, Error> {
        if self.state.lock().is_disconnected {
            return Err(Error::Unreachable("probing the reference".to_owned()));
        }
        Ok(ProbeReport { latency: Duration::ZERO })
    }

    fn saturation(&self) -> Option<f64> {
        Some(0.0)
    }
}
