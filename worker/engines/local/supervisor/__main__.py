from worker.engines.local.supervisor.supervisor import main

if __name__ == "__main__":
    main()
