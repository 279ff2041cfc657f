/** The roles of users, each with what it may do besides the one before it. */
import type { UserView } from "../../api/wire";

export type Role = UserView["role"];

export const ROLES: Readonly<Record<Role, string>> = {
  viewer: "reads the team's jobs, workers and the queue",
  member: "also submits and changes own jobs",
  operator: "also drains workers and kills any job",
  admin: "everything, for all users",
};
