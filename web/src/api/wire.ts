/** The service's JSON, under the names that the pages use. Generated from its OpenAPI document. */
import type { components } from "./schema";

type Schemas = components["schemas"];

export type JobState = Schemas["JobState"];
export type JobSummary = Schemas["JobSummary"];
export type ColumnView = Schemas["ColumnView"];
export type JobView = Schemas["JobView"];
export type SweepSummary = Schemas["SweepSummary"];
export type SweepView = Schemas["SweepView"];
export type SweepState = Schemas["SweepState"];
export type ScheduleSummary = Schemas["ScheduleSummary"];
export type ScheduleState = Schemas["ScheduleState"];
export type TrialView = Schemas["TrialView"];
export type EventView = Schemas["EventView"];
export type LogLine = Schemas["LogLine"];
export type LiveLine = Schemas["LiveLine"];
export type LogMatch = Schemas["LogMatch"];
export type ArtifactView = Schemas["ArtifactView"];
export type CheckpointView = Schemas["CheckpointView"];
export type MediaView = Schemas["MediaView"];
export type MediaKey = Schemas["MediaKeyView"];
export type MediaKind = Schemas["MediaKind"];
export type MediaPage = Schemas["MediaPage"];
export type MediaPart = Schemas["PictureView"];
export type ModelView = Schemas["ModelView"];
export type ModelVersion = Schemas["ModelVersionSummary"];
export type WorkerView = Schemas["WorkerView"];
export type PoolView = Schemas["PoolView"];
export type DeviceView = Schemas["DeviceView"];
export type QueueEntry = Schemas["QueueEntry"];
export type MeView = Schemas["MeView"];
export type SessionView = Schemas["SessionView"];
export type CodeOwnerView = Schemas["CodeOwnerView"];
export type FileLinkView = Schemas["FileLinkView"];
export type JobsPage = Schemas["JobPage"];
export type JobGroup = Schemas["JobGroup"];
export type Action = Schemas["JobActions"]["action"];
export type ActionsView = Schemas["ActionsView"];
export type MetricsAnswer = Schemas["CurvesView"];
export type HistoryView = Schemas["WorkerHistoryView"];
export type AttemptView = Schemas["AttemptView"];
export type StacksView = Schemas["StacksView"];
export type AdviceView = Schemas["AdviceView"];
export type EventKind = Schemas["EventKind"];
export type TargetView = Schemas["TargetView"];
export type NewTargetView = Schemas["NewTargetView"];
export type MessageView = Schemas["MessageView"];
export type SpecView = Schemas["SpecView"];
export type ProspectView = Schemas["ProspectView"];
export type SweepResolved = Schemas["SweepResolved"];
export type ScheduleView = Schemas["ScheduleView"];
export type BundleView = Schemas["BundleView"];
export type SecretView = Schemas["SecretView"];
export type TokenView = Schemas["TokenView"];
export type NewTokenView = Schemas["NewTokenView"];
export type BrowserSessionView = Schemas["BrowserSessionView"];
export type UserView = Schemas["UserView"];
export type QuotaView = Schemas["QuotaView"];
export type UserQuotaView = Schemas["UserQuotaView"];
export type AuditView = Schemas["AuditView"];
export type Problem = Schemas["Problem"];

export interface Page<T> {
  readonly data: readonly T[];
  readonly has_more: boolean;
  readonly next: string | null;
}
