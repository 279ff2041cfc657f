/** Why a folder cannot be packed, in words for the person who chose it. */
export class Refused extends Error {}
