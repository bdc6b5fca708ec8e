//! `GET /admin/partitions`: who moves which share of the keys.
use app::port_types::PartitionView;
use serde::Serialize;
use utoipa::ToSchema;

use crate::call::{Call, ok};
use crate::route::Answer;
use app::contract::rfc3339;

/// Every partition, in order.
#[derive(Serialize, ToSchema)]
pub(crate) struct Partitions {
    partitions: Vec<PartitionBody>,
}

/// A partition of the outbox.
#[derive(Serialize, ToSchema)]
#[schema(as = Partition)]
pub(crate) struct PartitionBody {
    #[schema(example = 7)]
    partition: u32,
    owner: Option<String>,
    /// Its latest acquisition.
    #[schema(example = 3)]
    epoch: u64,
    #[schema(example = 12)]
    counter: u64,
    /// The token of its open batch.
    in_flight: Option<u64>,
    #[schema(format = DateTime)]
    expires_at: Option<String>,
    /// Rows that have not left.
    #[schema(example = 0)]
    depth: u64,
}

impl From<PartitionView> for PartitionBody {
    fn from(view: PartitionView) -> Self {
        Self {
            partition: view.partition.0,
            owner: view.owner.map(|owner| owner.to_string()),
            epoch: view.epoch,
            counter: view.counter,
            in_flight: view.in_flight,
            expires_at: view.expires_at.map(rfc3339),
            depth: view.depth,
        }
    }
}

/// List the partitions
#[utoipa::path(get, path = "/admin/partitions", tag = "admin", operation_id = "listPartitions",
    security(("bearer" = [])),
    responses((status = 200, description = "In order", body = Partitions)))]
pub(crate) async fn list(call: Call) -> Answer {
    let partitions = call.state.operations.partitions().await?;
    Ok(ok(&Partitions { partitions: partitions.into_iter().map(PartitionBody::from).collect() }))
}
