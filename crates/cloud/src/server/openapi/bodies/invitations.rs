//! The bodies of invitations.

use std::collections::BTreeSet;

use utoipa::ToSchema;

use super::logins::Password;
use crate::models::schema::EndTime;
use crate::models::values::{DisplayName, Email, OrganizationId, TeamId, UnixMillis, UserId};
use crate::models::{OrgRole, Secret};

/// The settings of an invitation.
#[derive(ToSchema)]
pub(in crate::server) struct InvitationSpec {
    /// The address with which the person logs in.
    email: Email,
    role: OrgRole,
    /// The teams of the new member.
    team_ids: Option<BTreeSet<TeamId>>,
    /// The end of the membership.
    role_expires_at: Option<EndTime>,
    /// The end of the link, within 30 days; after 7 days by default.
    expires_at: Option<EndTime>,
}

/// An invitation that nobody has accepted.
#[derive(ToSchema)]
pub(in crate::server) struct Invitation {
    #[schema(format = "uuid")]
    id: String,
    email: Email,
    role: OrgRole,
    team_ids: Vec<TeamId>,
    #[schema(nullable = false)]
    role_expires_at: Option<EndTime>,
    /// From this second on, the link does not work.
    expires_at: EndTime,
    created_at: UnixMillis,
    /// The author. The link works while the author may invite with this role.
    owner_id: UserId,
}

/// An invitation with its link, which is shown only once.
#[derive(ToSchema)]
pub(in crate::server) struct CreatedInvitation {
    #[serde(flatten)]
    invitation: Invitation,
    /// The parameter `secret` of its query accepts the invitation.
    link: Secret,
}

/// The secret of an invitation, which works once, and the account to create.
#[derive(ToSchema)]
pub(in crate::server) struct InvitationAcceptance {
    #[schema(write_only)]
    secret: Secret,
    name: DisplayName,
    #[schema(write_only)]
    password: Password,
}

/// The secret of an invitation, which works once.
#[derive(ToSchema)]
pub(in crate::server) struct InvitationSecret {
    #[schema(write_only)]
    secret: Secret,
}

/// The new membership.
#[derive(ToSchema)]
pub(in crate::server) struct AcceptedInvitation {
    organization_id: OrganizationId,
    user_id: UserId,
    email: Email,
}
