//! The requests of a round of the relay that wait for their replies.
use ports::Error;
use ports::outbox::{Claim, ClaimOutcome, FencedOutcome, SettledClaim, Settlement};
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

    /// The requests as the queue had them, to be run later.
    pub(crate) fn into_round(self) -> Round {
        let claims = self.claims.into_iter().map(|PendingRequest { request, reply, busy }| RunningRequest {
            request: RelayRequest::Claim(request, reply),
            busy,
        });
        let settlements = self.settlements.into_iter().map(|PendingRequest { request, reply, busy }| RunningRequest {
            request: RelayRequest::Settle(request, reply),
            busy,
        });
        let both = self.settle_and_claims.into_iter().map(|PendingRequest { request, reply, busy }| RunningRequest {
            request: RelayRequest::SettleAndClaim(request.0, request.1, reply),
            busy,
        });
        Round { requests: claims.chain(settlements).chain(both).collect() }
    }
}
