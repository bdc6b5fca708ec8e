//! A claim, a settlement, or both of one partition, and the caller that waits for its result.
use outbox::LeaseFence;
use ports::Error;
use ports::outbox::{Claim, ClaimOutcome, FencedOutcome, SettledClaim, Settlement};
use tokio::sync::oneshot;

pub(crate) type RequestResult<T> = Result<T, Error>;
pub(crate) type ReplySender<T> = oneshot::Sender<RequestResult<T>>;

pub(crate) enum RelayRequest {
    Claim(Claim, ReplySender<ClaimOutcome>),
    Settle(Settlement, ReplySender<FencedOutcome>),
    SettleAndClaim(Settlement, Claim, ReplySender<SettledClaim>),
}

impl RelayRequest {
    /// The fence of its first statement.
    pub(crate) fn fence(&self) -> &LeaseFence {
        match self {
            Self::Claim(claim, _) => &claim.fence,
            Self::Settle(settlement, _) | Self::SettleAndClaim(settlement, _, _) => &settlement.fence,
        }
    }

    pub(crate) fn partition(&self) -> u32 {
        self.fence().partition.0
    }

    pub(crate) fn settlement(&self) -> Option<&Settlement> {
        match self {
            Self::Claim(..) => None,
            Self::Settle(settlement, _) | Self::SettleAndClaim(settlement, _, _) => Some(settlement),
        }
    }

    pub(crate) fn claim(&self) -> Option<&Claim> {
        match self {
            Self::Claim(claim, _) | Self::SettleAndClaim(_, claim, _) => Some(claim),
            Self::Settle(..) => None,
        }
    }

    /// The request without a claim that has no caller any more: a batch that it opened would only have to be resolved. `None` if nothing is
    /// left of it. A settlement is run in any case.
    pub(crate) fn without_abandoned_claim(self) -> Option<Self> {
        match self {
            Self::Claim(_, reply) if reply.is_closed() => None,
            Self::SettleAndClaim(settlement, _, reply) if reply.is_closed() => {
                Some(Self::Settle(settlement, oneshot::channel().0))
            }
            request => Some(request),
        }
    }

    pub(crate) fn reply_error(self, error: Error) {
        // Fails if the caller has gone.
        let _ = match self {
            Self::Claim(_, reply) => reply.send(Err(error)).is_ok(),
            Self::Settle(_, reply) => reply.send(Err(error)).is_ok(),
            Self::SettleAndClaim(_, _, reply) => reply.send(Err(error)).is_ok(),
        };
    }
}
