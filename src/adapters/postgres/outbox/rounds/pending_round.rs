//! The requests of a round of the relay that wait for their replies.
use ports::Error;
use ports::outbox::{Claim, ClaimOutcome, FencedOutcome, SettledClaim, Settlement};
use ports::partitions::LeaseFence;
use tokio::sync::oneshot;

use crate::outbox::rounds::relay_queue::{BusyPartition, RelayRequest, RequestResult, Round, RunningRequest};

/// A request, the sender of its reply, and the guard of its partition.
pub(crate) struct PendingRequest<Request, Response> {
    pub(crate) request: Request,
    reply: oneshot::Sender<RequestResult<Response>>,
    busy: BusyPartition,
}

impl<Request, Response> PendingRequest<Request, Response> {
    pub(crate) fn reply(self, result: RequestResult<Response>) {
        // The caller may send its next request as soon as it has the reply.
        drop(self.busy);
        // Fails if the caller has gone.
        let _ = self.reply.send(result);
    }
}

pub(crate) type PendingClaim = PendingRequest<Claim, ClaimOutcome>;
pub(crate) type PendingSettle = PendingRequest<Settlement, FencedOutcome>;
pub(crate) type PendingSettleAndClaim = PendingRequest<(Settlement, Claim), SettledClaim>;

/// The requests of one round by their kind.
#[derive(Default)]
pub(crate) struct PendingRound {
    pub(crate) claims: Vec<PendingClaim>,
    pub(crate) settlements: Vec<PendingSettle>,
    pub(crate) settle_and_claims: Vec<PendingSettleAndClaim>,
}

impl PendingRound {
    pub(crate) fn from_round(round: Round) -> Self {
        let mut pending = Self::default();
        for RunningRequest { request, busy } in round.requests {
            match request {
                RelayRequest::Claim(request, reply) => pending.claims.push(PendingRequest { request, reply, busy }),
                RelayRequest::Settle(request, reply) => {
                    pending.settlements.push(PendingRequest { request, reply, busy })
                }
                RelayRequest::SettleAndClaim(settlement, claim, reply) => {
                    pending.settle_and_claims.push(PendingRequest { request: (settlement, claim), reply, busy });
                }
            }
        }
        pending
    }

    pub(crate) fn len(&self) -> usize {
        self.claims.len() + self.settlements.len() + self.settle_and_claims.len()
    }

    pub(crate) fn fail(self, error: &Error) {
        self.claims.into_iter().for_each(|pending| pending.reply(Err(error.clone())));
        self.settlements.into_iter().for_each(|pending| pending.reply(Err(error.clone())));
        self.settle_and_claims.into_iter().for_each(|pending| pending.reply(Err(error.clone())));
    }

    /// The partitions of the requests, as columns of the store.
    pub(crate) fn partitions(&self) -> Vec<i32> {
        let claims = self.claims.iter().map(|pending| pending.request.fence.partition);
        let settlements = self.settlements.iter().map(|pending| pending.request.fence.partition);
        let both = self.settle_and_claims.iter().map(|pending| pending.request.0.fence.partition);
        claims.chain(settlements).chain(both).map(|partition| partition.0 as i32).collect()
    }

    /// The requests whose partitions match, and the others.
    pub(crate) fn split(self, matches: impl Fn(i32) -> bool) -> (Self, Self) {
        let matches = |fence: &LeaseFence| matches(fence.partition.0 as i32);
        let (claims, other_claims) = self.claims.into_iter().partition(|pending| matches(&pending.request.fence));
        let (settlements, other_settlements) =
            self.settlements.into_iter().partition(|pending| matches(&pending.request.fence));
        let (settle_and_claims, other_both) =
            self.settle_and_claims.into_iter().partition(|pending| matches(&pending.request.0.fence));
        (
            Self { claims, settlements, settle_and_claims },
            Self { claims: other_claims, settlements: other_settlements, settle_and_claims: other_both },
        )
    }

    /// The requests without the claims whose callers have gone: a batch that such a claim opened would only have to be resolved. The settlements
    /// stay.
    pub(crate) fn without_abandoned_claims(mut self) -> Self {
        self.claims.retain(|pending| !pending.reply.is_closed());
        let abandoned = self.settle_and_claims.extract_if(.., |pending| pending.reply.is_closed());
        self.settlements.extend(abandoned.map(|pending| PendingRequest {
            request: pending.request.0,
            reply: oneshot::channel().0,
            busy: pending.busy,
        }));
        self
    }
}
