"""Where files of jobs are, for scheduler-files: folders of this machine, of one that ssh reaches,
and S3. All is done with the rights of the user who runs the command; no scheduler takes part."""
