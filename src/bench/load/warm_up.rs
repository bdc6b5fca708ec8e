//! The load before a measurement: topics, connections and plans are new to the first orders, and what they left waiting is not measured.
use super::generator::Load;
use crate::error::Error;
use crate::program::ThrowawayData;
use crate::service::process::{LOG_ACKNOWLEDGEMENTS, ServiceProcess};

/// Starts a service that logs acknowledgements, and applies the load until every event of it is consumed. `load` creates the load for an
/// address. Returns the service and the number of answered requests.
pub(crate) async fn start_warm<'a, D: ThrowawayData>(
    data: &'a D,
    load: impl FnOnce(std::net::SocketAddr) -> Load,
) -> Result<(ServiceProcess<'a, D>, u64), Error> {
    let service = ServiceProcess::start(data, &[LOG_ACKNOWLEDGEMENTS]).await?;
    let answered = load(service.address).run(data).await?.answered;
    service.await_consumed(answered).await?;
    service.take_acknowledged_ms(answered).await?;
    Ok((service, answered))
}
