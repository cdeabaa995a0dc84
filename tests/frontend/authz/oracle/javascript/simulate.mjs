// A line of standard input is a simulation, as JSON; a line of standard output is what becomes of it.
import { anonymousPrincipal, runSimulation } from '@cloud-copilot/iam-simulate'
import { createInterface } from 'node:readline'

for await (const line of createInterface({ input: process.stdin })) {
  const simulation = JSON.parse(line)
  simulation.request.principal ??= anonymousPrincipal
  let answer
  try {
    const outcome = await runSimulation(simulation, {})
    answer = outcome.resultType === 'error' ? { error: outcome.errors } : { result: outcome.overallResult }
  } catch (error) {
    answer = { error: { message: `thrown: ${error.message}` } }
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`)
}
