/** Opens a terminal in a running job, or a port of it: in a tab at a host name of its own. */
import { get, post } from "../../api/client";
import type { OpenedOriginView, OriginsView } from "../../api/wire";

/** Returns whether this browser can open them. Throws ApiError. */
export async function isAvailable(jobId: string): Promise<boolean> {
  return (await get<OriginsView>(`v1/jobs/${jobId}/origins`)).is_available;
}

/**
 * Opens a tab. `port`: null for a terminal. Returns null; the address where the browser opens no tab, good for 30 s.
 * Throws ApiError.
 */
export async function openTab(jobId: string, port: number | null): Promise<string | null> {
  const { url } = await post<OpenedOriginView>(`v1/jobs/${jobId}/origins`, { port });
  const tab = window.open(url, "_blank");
  if (tab === null) return url;
  tab.opener = null; // what a job serves must not lead this page elsewhere
  return null;
}
